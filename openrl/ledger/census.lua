-- A page of the census, for it is too long for one script when much is going on.
-- ARGV[3] ready, held or gaps (ops and runs), standing (of the line [6] and the tenant [7]: owners), or lines
-- [4] [5] first and last place in it
-- -> the time, what was found, and how many places were looked at; what was found is
--    {'held', queue, tenant}  {'waits', queue, tenant, ops, when the oldest was appended}  {'stands', the same}
--    of lines: {'slots', line, slots that live workers bring}  {'pace', line, tenant, its seconds, rings in them}
-- A run counts by the op that it has come to: that one alone can be ready, held or missing.
local part, first, last = ARGV[3], ARGV[4], ARGV[5]
local found = {}

local function tell(...) found[#found + 1] = { ... } end

local function appended(id) return redis.call('HGET', p .. 'op:' .. id, 'appended') end

local function run_waits(run, queue, tenant, from)
  local ids = redis.call('ZRANGE', p .. 'turns:' .. run, from, from)
  if not ids[1] then return end
  tell('waits', queue, tenant, redis.call('ZCARD', p .. 'turns:' .. run) - from, appended(ids[1]))
end

local function look_at_op(id, held)
  local row = redis.call('HMGET', p .. 'op:' .. id, 'tenant', 'line', 'run', 'bell', 'appended')
  local queue = row[2] or queue_of(row[4])
  if held then tell('held', queue, row[1]) end
  if row[3] ~= '' then
    run_waits(row[3], queue, row[1], held and 1 or 0)
  elseif not held then
    tell('waits', queue, row[1], 1, row[5])
  end
end

local function look_at_gap(run)
  local id = redis.call('ZRANGE', p .. 'turns:' .. run, 0, 0)[1]
  local row = redis.call('HMGET', p .. 'op:' .. id, 'tenant', 'bell')
  run_waits(run, queue_of(row[2]), row[1], 0)
end

local function look_at_owner(at, owner)
  local ids = redis.call('ZRANGE', at .. '/' .. owner, 0, 0)
  tell('stands', ARGV[6], ARGV[7], redis.call('ZCARD', at .. '/' .. owner), appended(ids[1]))
end

local function look_at_lines()
  for _, line in ipairs(redis.call('SMEMBERS', p .. 'lines')) do
    for _, tenant in ipairs(redis.call('ZRANGE', p .. 'line:' .. line, 0, -1)) do
      local since, count = pace_of(line, tenant)
      tell('pace', line, tenant, stamp(now - since), tostring(count))
    end
  end
  local brings = redis.call('HGETALL', p .. 'brings')
  for i = 1, #brings, 2 do
    local worker, line = brings[i], brings[i + 1]
    if alive(worker) then tell('slots', line, redis.call('HGET', p .. 'slots:' .. line, worker) or '0') end
  end
end

if part == 'lines' then
  look_at_lines()
  return { stamp(now), found, 0 }
end
local at = part == 'standing' and p .. 'line:' .. ARGV[6] .. '/' .. ARGV[7] or p .. part
local places = redis.call('ZRANGE', at, first, last)
for _, name in ipairs(places) do
  if part == 'standing' then
    look_at_owner(at, name)
  elseif part == 'gaps' then
    look_at_gap(name)
  else
    look_at_op(name, part == 'held')
  end
end
return { stamp(now), found, #places }
