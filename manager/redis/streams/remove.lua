local run = ARGV[2]
if redis.call('HGET', meta, 'run') == run then
  forget()
  redis.call('SREM', index, id)
  tell()
end
return answer('ok')
