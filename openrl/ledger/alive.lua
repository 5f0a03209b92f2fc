-- ARGV[3] holder  [4] hold_seconds  [5] queue whose fresh runs may be placed on it, '' for none
-- [6] line it brings slots to, '' for none  [7] how many -> bells: of the ops that these let go. Its leases go on
redis.call('ZADD', p .. 'holders', stamp(now + tonumber(ARGV[4])), ARGV[3])
if ARGV[5] == '' then
  redis.call('HDEL', p .. 'takers', ARGV[3])
else
  redis.call('HSET', p .. 'takers', ARGV[3], ARGV[5])
end
bring(ARGV[3], ARGV[6], ARGV[7])
return bells
