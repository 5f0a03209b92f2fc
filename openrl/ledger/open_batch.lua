-- ARGV[3] max_waiting_per_tenant  [4] batch  [5] tenant  [6] ops it will have  [7...] fields of a new one
-- -> word, its fields. One whose ops did not all come gets the places again that it gave up
local key, tenant, ops = p .. 'batch:' .. ARGV[4], ARGV[5], tonumber(ARGV[6])
local row = redis.call('HMGET', key, 'appended', 'reserved', 'cancelled')
local missing = ops - tonumber(row[1] or 0) - tonumber(row[2] or 0)
if row[3] then missing = 0 end
if missing > 0 and unsettled_of(tenant) + missing > tonumber(ARGV[3]) then
  return { 'full', tostring(unsettled_of(tenant)) }
end
if not row[1] then
  redis.call('HSET', key, 'tenant', tenant, 'ops', ops, 'created', stamp(now), 'appended', 0, 'unsettled', 0, 'reserved', 0,
    'groups_settled', 0, unpack(ARGV, 7))
end
if missing > 0 then
  count_tenant(tenant, missing)
  redis.call('HINCRBY', key, 'reserved', missing)
end
redis.call('HSET', key, 'last', stamp(now))
look_later(ARGV[4], 1)
return { 'open', redis.call('HGETALL', key) }
