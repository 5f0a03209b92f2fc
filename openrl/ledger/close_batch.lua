-- ARGV[3] batch: no op of it comes any more  [4] what becomes of those that did and have not settled -> 1 where it is
-- there. Whoever closes it has a head start on the sweep
local key = p .. 'batch:' .. ARGV[3]
if redis.call('EXISTS', key) == 0 then return 0 end
redis.call('HSETNX', key, 'cancelled', ARGV[4])
give_up_places(ARGV[3])
look_later(ARGV[3], 2)
return 1
