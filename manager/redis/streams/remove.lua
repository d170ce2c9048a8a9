local run = ARGV[2]
if redis.call('HGET', meta, 'run') == run then
  forget()
  redis.call('SREM', index, id)
  publish()
end
return answer('ok')
