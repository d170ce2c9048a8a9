-- Replaces the header if it equals the old one.
local h = redis.call('HMGET', KEYS[1], 'id', 'body')
if (h[1] or '') ~= ARGV[1] or (h[2] or '') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'id', ARGV[3], 'body', ARGV[4])
return 1
