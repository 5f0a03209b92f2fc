-- ARGV[3] batch: no op of it comes any more -> 1 where it is there
local key = p .. 'batch:' .. ARGV[3]
if redis.call('EXISTS', key) == 0 then return 0 end
redis.call('HSET', key, 'cancelled', 1)
give_up_places(ARGV[3])
return 1
