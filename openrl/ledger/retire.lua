-- ARGV[3] policy  [4] seconds that nobody must have needed it for, '' where that does not matter -> 1 if ops that need
-- it are refused from now on
local policy, unused = ARGV[3], tonumber(ARGV[4])
if unused then
  local used = redis.call('ZSCORE', p .. 'used', policy)
  if redis.call('HEXISTS', p .. 'needed', policy) == 1 then return 0 end
  if used and tonumber(used) > now - unused then return 0 end
end
redis.call('ZADD', p .. 'retired', stamp(now), policy)
redis.call('ZREM', p .. 'used', policy)
return 1
