local run, covered = ARGV[2], ARGV[3]
if redis.call('HGET', meta, 'run') == run then
  redis.call('HSET', meta, 'archived', covered)
  changed()
end
return answer('ok')
