-- The chunks from the one with a line on, each behind its id, until there are enough bytes.
local run, line, enough = ARGV[2], ARGV[3], tonumber(ARGV[4])
if redis.call('HGET', meta, 'run') ~= run then return false end
local first = redis.call('XREVRANGE', lines, line, '-', 'COUNT', 1)
if #first == 0 then return {} end
local out, size, from = {}, 0, first[1][1]
while true do
  local part = redis.call('XRANGE', lines, from, '+', 'COUNT', 16)
  for _, entry in ipairs(part) do
    local text = entry[2][2]
    out[#out + 1], out[#out + 2] = entry[1], text
    size = size + #text
    if size >= enough then return out end
    from = '(' .. entry[1]
  end
  if #part < 16 then return out end
end
