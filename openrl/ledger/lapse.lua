-- ARGV[3] holder, whose process has ended -> 1: its leases and claims have lapsed, and the next sweep sees to them
redis.call('ZADD', p .. 'holders', 'XX', stamp(now), ARGV[3])
for _, id in ipairs(redis.call('ZRANGE', p .. 'held', 0, -1)) do
  if redis.call('HGET', p .. 'op:' .. id, 'holder') == ARGV[3] then redis.call('ZADD', p .. 'held', stamp(now), id) end
end
return 1
