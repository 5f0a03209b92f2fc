-- ARGV[3] id -> nothing where it does not stand in a line, else ops of its tenant that may be rung before it, at
-- most; seconds since its tenant's pace began; rings since then
local row = redis.call('HMGET', p .. 'op:' .. ARGV[3], 'status', 'line', 'rings', 'tenant', 'sampler', 'batch', 'pending')
local line, tenant, owner = row[2], row[4], row[5] or row[6] or ''
if row[1] ~= 'waiting' or not line or row[3] or row[7] then return {} end
local at = p .. 'line:' .. line .. '/' .. tenant
local before = redis.call('ZRANK', at .. '/' .. owner, ARGV[3])
local ahead = before * redis.call('ZCARD', at) + redis.call('ZRANK', at, owner)
local since, count = pace_of(line, tenant)
local unsettled = tonumber(redis.call('HGET', p .. 'tenants', tenant))
local out = redis.call('SCARD', p .. 'out:' .. line .. '/' .. tenant)
return { math.min(ahead, unsettled - out - 1), stamp(now - since), tostring(count) }
