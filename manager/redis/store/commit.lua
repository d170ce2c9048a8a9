-- Makes chunks the saved state, and drops what the one before covered.
-- KEYS: state, log, origins, the chunks, the chunks of the state before.
-- ARGV: ID of the state before, ID, seq, token, at, saved, rules, size, chunks, and
-- until when origins are forgotten.
local id, seq, token, chunks = ARGV[2], ARGV[3], ARGV[4], ARGV[9]
local was = redis.call('HMGET', KEYS[1], 'id', 'seq')
if was[1] == id then return 'done' end
if (was[1] or '') ~= ARGV[1] then return 'again' end
if was[2] and tonumber(was[2]) >= tonumber(seq) then
  redis.call('DEL', KEYS[4])
  return 'old'
end
-- It may have been made of entries that were lost since.
local entry = redis.call('XRANGE', KEYS[2], seq .. '-0', seq .. '-0')[1]
local kept = entry and entry[2][12] == token
if not kept or redis.call('HLEN', KEYS[4]) ~= tonumber(chunks) then return 'lost' end

redis.call('HSET', KEYS[1], 'id', id, 'seq', seq, 'token', token, 'at', ARGV[5], 'saved', ARGV[6], 'rules', ARGV[7], 'size', ARGV[8], 'chunks', chunks)
redis.call('PERSIST', KEYS[4])
if was[2] then
  redis.call('XTRIM', KEYS[2], 'MINID', string.format('%d-0', was[2] + 1))
  redis.call('UNLINK', KEYS[5])
end
local all = redis.call('HGETALL', KEYS[3])
for i = 1, #all, 2 do
  if tonumber(string.match(all[i + 1], '%d+$')) < tonumber(ARGV[10]) then redis.call('HDEL', KEYS[3], all[i]) end
end
return 'done'
