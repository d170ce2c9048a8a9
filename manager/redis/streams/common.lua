-- What all scripts begin with. Numbers above 2^53 stay text: Lua's are floats.
local meta, lines, totals, news, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id = ARGV[1]

local function int(n) return string.format('%.0f', n) end

local function now()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- grow counts streams and bytes. The version tells later counts from earlier ones.
local function grow(n, size)
  redis.call('HINCRBY', totals, 'n', int(n))
  redis.call('HINCRBY', totals, 'size', int(size))
  redis.call('HINCRBY', totals, 'v', 1)
end

local function count()
  local t = redis.call('HMGET', totals, 'n', 'size', 'v')
  return t[1] or '0', t[2] or '0', t[3] or '0'
end

local function answer(status, extra)
  return { status, extra or '', count() }
end

local function tell()
  local n, size, v = count()
  redis.call('XADD', news, 'MAXLEN', '~', 4096, '*', 'id', id, 'n', n, 'size', size, 'v', v)
end

local function changed()
  redis.call('HSET', meta, 'touched', int(now()))
  tell()
end

-- forget removes the stream's run, if there is one.
local function forget()
  local size = redis.call('HGET', meta, 'size')
  if size then
    redis.call('UNLINK', meta, lines)
    grow(-1, -size)
  end
end

-- begin begins a run. No two of a shard have the same number, and a later one has a higher one.
local function begin(account, key, size)
  local run = math.max(now(), (tonumber(redis.call('HGET', totals, 'run')) or 0) + 1)
  forget()
  redis.call('HSET', totals, 'run', int(run))
  redis.call('HSET', meta, 'account', account, 'key', key, 'run', int(run), 'open', '1', 'lines', '0',
    'size', size, 'archived', '0')
  redis.call('SADD', index, id)
  grow(1, size)
end
