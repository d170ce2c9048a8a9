-- The beginning of all scripts. Numbers above 2^53 stay text, because Lua numbers are floats.
local meta, lines, totals, news, index, accounts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id = ARGV[1]
local owner = redis.call('HGET', meta, 'account') or ''

local function int(n) return string.format('%.0f', n) end

local function now()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- grow adds to the number of streams and of bytes, of the shard and of the owner. The version
-- orders the totals.
local function grow(n, size)
  redis.call('HINCRBY', accounts, 's:' .. owner, int(size))
  if redis.call('HINCRBY', accounts, 'n:' .. owner, int(n)) <= 0 then
    redis.call('HDEL', accounts, 'n:' .. owner, 's:' .. owner)
  end
  redis.call('HINCRBY', totals, 'n', int(n))
  redis.call('HINCRBY', totals, 'size', int(size))
  redis.call('HINCRBY', totals, 'v', 1)
end

local function count()
  local t = redis.call('HMGET', totals, 'n', 'size', 'v')
  local own = redis.call('HMGET', accounts, 'n:' .. owner, 's:' .. owner)
  return t[1] or '0', t[2] or '0', t[3] or '0', owner, own[1] or '0', own[2] or '0'
end

local function answer(status, extra)
  return { status, extra or '', count() }
end

local function publish()
  local n, size, v, account, own, ownSize = count()
  redis.call('XADD', news, 'MAXLEN', '~', 4096, '*', 'id', id, 'n', n, 'size', size, 'v', v,
    'account', account, 'own', own, 'ownSize', ownSize)
end

local function changed()
  redis.call('HSET', meta, 'touched', int(now()))
  publish()
end

-- forget removes the run of the stream, if it has one.
local function forget()
  local size = redis.call('HGET', meta, 'size')
  if size then
    redis.call('UNLINK', meta, lines)
    grow(-1, -size)
  end
end

-- begin starts a run. Each run of a shard has a higher number than all earlier ones.
local function begin(account, key, size)
  local run = math.max(now(), (tonumber(redis.call('HGET', totals, 'run')) or 0) + 1)
  forget()
  owner = account
  redis.call('HSET', totals, 'run', int(run))
  redis.call('HSET', meta, 'account', account, 'key', key, 'run', int(run), 'open', '1', 'lines', '0',
    'size', size, 'archived', '0')
  redis.call('SADD', index, id)
  grow(1, size)
end
