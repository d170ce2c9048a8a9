-- Adds messages that are not in the stream. ARGV: pairs of an id and a text.
for i = 1, #ARGV, 2 do
  local entry = redis.call('HGET', KEYS[2], ARGV[i])
  if not entry or #redis.call('XRANGE', KEYS[1], entry, entry) == 0 then
    redis.call('HSET', KEYS[2], ARGV[i], redis.call('XADD', KEYS[1], '*', 'message', ARGV[i + 1]))
  end
end
return 0
