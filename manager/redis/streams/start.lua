local account, key, writer, size = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local m = redis.call('HMGET', meta, 'run', 'open', 'w:' .. writer)
if m[1] and (m[2] == '1' or m[3]) then return answer('ok') end
begin(account, key, size)
if writer ~= '' then redis.call('HSET', meta, 'w:' .. writer, '0') end
changed()
return answer('ok')
