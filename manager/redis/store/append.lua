-- Appends a batch after the last entry, unless the log already has it.
local origin, counter = ARGV[2], ARGV[3]
local h = redis.call('HMGET', KEYS[1], 'id', 'seq', 'token', 'at')
if h[1] ~= ARGV[1] then return redis.error_reply('OTHERLOG ' .. (h[1] or 'there is none')) end

local last = redis.call('HGET', KEYS[2], origin)
if last then
  local known, seq, token, prev, at = string.match(last, '(%d+) (%d+) (%x+) (%x*) (%d+)')
  if known == counter then return {seq, token, prev, at} end
  if tonumber(known) > tonumber(counter) then return redis.error_reply('LATE batch ' .. counter .. ' comes after ' .. known) end
end

local seq, prev, at = string.format('%d', (h[2] or 0) + 1), h[3] or '', h[4]
local t = redis.call('TIME')
local now = string.format('%d%06d', t[1], t[2])
if not at or tonumber(now) > tonumber(at) then at = now end
-- The token depends on all previous entries. Because it covers the time, two logs that
-- diverged never have the same token.
local token = string.sub(redis.sha1hex(table.concat({prev, seq, at, origin, counter}, ' ')), 1, 20)

redis.call('XADD', KEYS[3], seq .. '-0', 'o', origin, 'c', counter, 'r', ARGV[4], 't', at, 'p', prev, 'k', token, 'b', ARGV[5])
redis.call('HSET', KEYS[1], 'seq', seq, 'token', token, 'at', at)
redis.call('HSET', KEYS[2], origin, table.concat({counter, seq, token, prev, at}, ' '))
return {seq, token, prev, at}
