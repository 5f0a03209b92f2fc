-- -> the time; (line, slots that live workers bring) of each line; what was found, each by queue and tenant:
--    {'held', queue, tenant}  {'waits', queue, tenant, ops, when the oldest was appended}
--    {'stands', line, tenant, ops, seconds since its pace began, rings since then}
-- A run counts by the op that it has come to: that one alone can be ready, held or missing.
local found = {}

local function tell(...) found[#found + 1] = { ... } end

local function appended(id) return redis.call('HGET', p .. 'op:' .. id, 'appended') end

local function run_waits(run, queue, tenant, from)
  local ids = redis.call('ZRANGE', p .. 'turns:' .. run, from, from)
  if not ids[1] then return end
  tell('waits', queue, tenant, redis.call('ZCARD', p .. 'turns:' .. run) - from, appended(ids[1]))
end

local function queue_of(bell) return cmsgpack.unpack(bell).queue end

for _, index in ipairs({ 'ready', 'held' }) do
  for _, id in ipairs(redis.call('ZRANGE', p .. index, 0, -1)) do
    local row = redis.call('HMGET', p .. 'op:' .. id, 'tenant', 'line', 'run', 'bell', 'appended')
    local held, queue = index == 'held', row[2] or queue_of(row[4])
    if held then tell('held', queue, row[1]) end
    if row[3] ~= '' then
      run_waits(row[3], queue, row[1], held and 1 or 0)
    elseif not held then
      tell('waits', queue, row[1], 1, row[5])
    end
  end
end

for _, run in ipairs(redis.call('ZRANGE', p .. 'gaps', 0, -1)) do
  local first = redis.call('ZRANGE', p .. 'turns:' .. run, 0, 0)[1]
  local row = redis.call('HMGET', p .. 'op:' .. first, 'tenant', 'bell')
  run_waits(run, queue_of(row[2]), row[1], 0)
end

for _, line in ipairs(redis.call('SMEMBERS', p .. 'lines')) do
  for _, tenant in ipairs(redis.call('ZRANGE', p .. 'line:' .. line, 0, -1)) do
    local at, standing = p .. 'line:' .. line .. '/' .. tenant, 0
    for _, owner in ipairs(redis.call('ZRANGE', at, 0, -1)) do
      local ops = redis.call('ZCARD', at .. '/' .. owner)
      standing = standing + ops
      tell('waits', line, tenant, ops, appended(redis.call('ZRANGE', at .. '/' .. owner, 0, 0)[1]))
    end
    local since, count = pace_of(line, tenant)
    tell('stands', line, tenant, standing, stamp(now - since), tostring(count))
  end
end

local sums, slots = {}, {}
local brings = redis.call('HGETALL', p .. 'brings')
for i = 1, #brings, 2 do
  local worker, line = brings[i], brings[i + 1]
  if alive(worker) then
    sums[line] = (sums[line] or 0) + tonumber(redis.call('HGET', p .. 'slots:' .. line, worker) or 0)
  end
end
for line, sum in pairs(sums) do
  slots[#slots + 1] = line
  slots[#slots + 1] = sum
end
return { stamp(now), slots, found }
