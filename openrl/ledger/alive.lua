-- ARGV[3] holder  [4] hold_seconds  [5] queue whose fresh runs may be placed on it, '' for none -> 1: its leases go on
redis.call('ZADD', p .. 'holders', stamp(now + tonumber(ARGV[4])), ARGV[3])
if ARGV[5] == '' then
  redis.call('HDEL', p .. 'takers', ARGV[3])
else
  redis.call('HSET', p .. 'takers', ARGV[3], ARGV[5])
end
return 1
