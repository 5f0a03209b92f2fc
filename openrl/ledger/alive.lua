-- ARGV[3] holder  [4] hold_seconds -> 1: its leases go on
redis.call('ZADD', p .. 'holders', stamp(now + tonumber(ARGV[4])), ARGV[3])
return 1
