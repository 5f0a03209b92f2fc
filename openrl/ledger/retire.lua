-- ARGV[3] policy  [4] seconds that nobody must have needed it for -> 1 if ops that need it are refused from now on
local policy = ARGV[3]
local used = redis.call('ZSCORE', p .. 'used', policy)
if redis.call('HEXISTS', p .. 'needed', policy) == 1 then return 0 end
if used and tonumber(used) > now - tonumber(ARGV[4]) then return 0 end
redis.call('ZADD', p .. 'retired', stamp(now), policy)
redis.call('ZREM', p .. 'used', policy)
return 1
