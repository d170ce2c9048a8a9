local snapshot, uploaded = ARGV[2], ARGV[3]
local m = redis.call('HMGET', meta, 'run', 'open', 'lines', 'archived')
if not m[1] then return answer('unknown') end
local replaced = snapshot == '1' and m[4] == uploaded and m[3] ~= '0'
if replaced then redis.call('HSET', meta, 'archived', '0') end
if m[2] == '1' then redis.call('HSET', meta, 'open', '0') end
if replaced or m[2] == '1' then changed() end
return answer('ok')
