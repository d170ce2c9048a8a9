-- expect is where the caller believes the writer to be; once recognises a batch
-- without a writer that is sent again. Behind them are the chunks: how many lines,
-- and the lines.
local account, key, writer, expect, next, once = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local head, name, size, most = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local maxFields = tonumber(ARGV[12])
local m = redis.call('HMGET', meta, 'run', 'lines', 'size', 'w:' .. writer, 'once')
local run, had, taken, known = m[1], tonumber(m[2]) or 0, tonumber(m[3]) or head, m[4]

if writer ~= '' and (known or '0') ~= expect then return answer('next', known or '0') end
if run and (#ARGV == 12 or writer == '' and m[5] == once) then return answer('ok') end
if writer ~= '' and not known then size = size + name end
if taken + size > most then return answer('long') end
if writer ~= '' and not known and redis.call('HLEN', meta) >= maxFields then return answer('writers') end

if not run then begin(account, key, int(head)) end
for i = 13, #ARGV, 2 do
  redis.call('XADD', lines, int(had + 1) .. '-0', 't', ARGV[i + 1])
  had = had + ARGV[i]
end
if #ARGV > 12 then
  redis.call('HSET', meta, 'open', '1', 'lines', int(had), 'size', int(taken + size))
  grow(0, size)
  if writer ~= '' then
    redis.call('HSET', meta, 'w:' .. writer, next)
  else
    redis.call('HSET', meta, 'once', once)
  end
end
changed()
return answer('ok')
