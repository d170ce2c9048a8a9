-- Begins the idle time of messages anew. ARGV: the group, the consumer, then ids.
for i = 3, #ARGV do
  local entry = redis.call('HGET', KEYS[2], ARGV[i])
  if entry then
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, entry, 'JUSTID')
  end
end
return 0
