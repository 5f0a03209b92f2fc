-- ARGV[3] run -> (id, kind, tenant, turn, body_at, body) for each op applied since the newest snapshot, in order
local out = {}
for _, id in ipairs(redis.call('ZRANGE', p .. 'journal:' .. ARGV[3], 0, -1)) do
  local row = redis.call('HMGET', p .. 'op:' .. id, 'kind', 'tenant', 'turn', 'body_at', 'body')
  out[#out + 1] = id
  for i = 1, 5 do out[#out + 1] = row[i] or '' end
end
return out
