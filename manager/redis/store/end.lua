-- Returns the end of the log.
local h = redis.call('HMGET', KEYS[1], 'id', 'seq', 'token')
local t = redis.call('TIME')
return {h[1] or '', h[2] or '0', h[3] or '', string.format('%d%06d', t[1], t[2])}
