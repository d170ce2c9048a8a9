-- Removes messages from the stream. ARGV: the group, then ids.
for i = 2, #ARGV do
  local entry = redis.call('HGET', KEYS[2], ARGV[i])
  if entry then
    redis.call('HDEL', KEYS[2], ARGV[i])
    redis.call('XACK', KEYS[1], ARGV[1], entry)
    redis.call('XDEL', KEYS[1], entry)
  end
end
return 0
