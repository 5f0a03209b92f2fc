-- The second head of every ledger script: lines. An op with a line is rung only while its tenant has fewer ops out there
-- (rung or held) than the line has free slots, and few of them unclaimed; before that it stands.
--
-- slots:<line>         hash  worker -> the slots it brings
-- brings               hash  worker -> the line it brings them to
-- lines                set   those in which ops stand
-- line:<line>          zset  tenants with ops that stand, the next to be rung first
-- line:<line>/<tenant> zset  its owners (samplers; one without a name for rewards) with ops that stand, the same way
-- line:<line>/<tenant>/<owner> zset  ids of these ops, as they came
-- pace:<line>          hash  tenant with ops that stand -> since when, and how many were rung since
-- out:<line>           zset  <tenant>/<id> of ops rung or held, by the time to look whether they still are
-- out:<line>/<tenant>  set   ids of those of one tenant
-- bells:<line>/<tenant> set  ids of those of them that nobody has claimed since they came out
-- places               counter that puts tenants, owners and ops in their order
--
-- Neither a line's name nor a tenant's has a slash.
local PACE_KEPT = 64  -- rings after which half of a pace is forgotten

local function place() return redis.call('INCR', p .. 'places') end

local function slots_of(line)
  local sum, brought = 0, redis.call('HGETALL', p .. 'slots:' .. line)
  for i = 1, #brought, 2 do
    if alive(brought[i]) then sum = sum + tonumber(brought[i + 1]) end
  end
  return sum > 0 and sum or UNSERVED_SLOTS
end

local function free_of(slots, line) return slots - redis.call('ZCARD', p .. 'out:' .. line) end

local function may_ring(line, tenant, slots, free)
  local of_tenant = line .. '/' .. tenant
  return free > 0 and redis.call('SCARD', p .. 'out:' .. of_tenant) < free
    and redis.call('SCARD', p .. 'bells:' .. of_tenant) < math.max(BELLS_AT_LEAST, math.floor(slots / SLOTS_FOR_A_BELL))
end

local function go_out(line, tenant, id)
  redis.call('ZADD', p .. 'out:' .. line, stamp(now + ring_again), tenant .. '/' .. id)
  redis.call('SADD', p .. 'out:' .. line .. '/' .. tenant, id)
  redis.call('SADD', p .. 'bells:' .. line .. '/' .. tenant, id)
  ready(id)
end

local function come_in(line, tenant, id)
  redis.call('ZREM', p .. 'out:' .. line, tenant .. '/' .. id)
  redis.call('SREM', p .. 'out:' .. line .. '/' .. tenant, id)
  redis.call('SREM', p .. 'bells:' .. line .. '/' .. tenant, id)
end

local function stand(line, tenant, owner, id)
  local at, behind = p .. 'line:' .. line, place()
  redis.call('ZADD', at .. '/' .. tenant .. '/' .. owner, behind, id)
  redis.call('ZADD', at .. '/' .. tenant, 'NX', behind, owner)
  if redis.call('ZADD', at, 'NX', behind, tenant) == 1 then
    redis.call('HSET', p .. 'pace:' .. line, tenant, stamp(now) .. ' 0')
    redis.call('SADD', p .. 'lines', line)
  end
end

-- An op that stands no longer does.
local function step_out(line, tenant, owner, id)
  local at = p .. 'line:' .. line
  redis.call('ZREM', at .. '/' .. tenant .. '/' .. owner, id)
  if redis.call('EXISTS', at .. '/' .. tenant .. '/' .. owner) == 1 then return end
  redis.call('ZREM', at .. '/' .. tenant, owner)
  if redis.call('EXISTS', at .. '/' .. tenant) == 1 then return end
  redis.call('ZREM', at, tenant)
  redis.call('HDEL', p .. 'pace:' .. line, tenant)
  if redis.call('EXISTS', at) == 0 then redis.call('SREM', p .. 'lines', line) end
end

local function pace_of(line, tenant)
  local pace = redis.call('HGET', p .. 'pace:' .. line, tenant)
  if not pace then return nil end
  local since, count = pace:match('^(%S+) (%S+)$')
  return tonumber(since), tonumber(count)
end

local function note_pace(line, tenant)
  local since, count = pace_of(line, tenant)
  if not since then return end
  if count >= PACE_KEPT then since, count = now - (now - since) / 2, count / 2 end
  redis.call('HSET', p .. 'pace:' .. line, tenant, stamp(since) .. ' ' .. (count + 1))
end

-- Among so many tenants is one with nothing out, and one with nothing out may ring: looking further is not needed.
local function next_tenant(line, slots, free)
  for _, tenant in ipairs(redis.call('ZRANGE', p .. 'line:' .. line, 0, redis.call('ZCARD', p .. 'out:' .. line))) do
    if may_ring(line, tenant, slots, free) then return tenant end
  end
end

-- Ring the next op of a tenant that stands; tenant and owner go to the end of their order.
local function ring_next(line, tenant)
  local at = p .. 'line:' .. line
  local owner = redis.call('ZRANGE', at .. '/' .. tenant, 0, 0)[1]
  local id = redis.call('ZRANGE', at .. '/' .. tenant .. '/' .. owner, 0, 0)[1]
  local behind = place()
  redis.call('ZADD', at, behind, tenant)
  redis.call('ZADD', at .. '/' .. tenant, behind, owner)
  step_out(line, tenant, owner, id)
  note_pace(line, tenant)
  go_out(line, tenant, id)
end

-- Ring all that may be rung; answers how many.
local function move(line)
  local moved = 0
  if redis.call('EXISTS', p .. 'line:' .. line) == 0 then return moved end
  local slots = slots_of(line)
  local free = free_of(slots, line)
  while free > 0 do
    local tenant = next_tenant(line, slots, free)
    if not tenant then break end
    ring_next(line, tenant)
    moved, free = moved + 1, free - 1
  end
  return moved
end

-- Somebody answered the bell.
local function answered(line, tenant, id)
  if redis.call('SREM', p .. 'bells:' .. line .. '/' .. tenant, id) == 1 then move(line) end
end

-- An op of no run comes: it is rung, or stands. Who stands already is not under the threshold.
local function line_up(line, tenant, owner, id)
  local slots = slots_of(line)
  if redis.call('ZSCORE', p .. 'line:' .. line, tenant) or not may_ring(line, tenant, slots, free_of(slots, line)) then
    stand(line, tenant, owner, id)
  else
    go_out(line, tenant, id)
  end
end

leave_line = function(line, tenant, owner, id, was_rung)
  if was_rung then come_in(line, tenant, id) else step_out(line, tenant, owner, id) end
  move(line)
end

-- What counts as out though it has settled (a worker of a version without lines settled it) no longer does.
local function audit(line, most)
  local due = redis.call('ZRANGEBYSCORE', p .. 'out:' .. line, '-inf', stamp(now), 'LIMIT', 0, most)
  for _, member in ipairs(due) do
    local tenant, id = member:match('^([^/]*)/(.*)$')
    local status = redis.call('HGET', p .. 'op:' .. id, 'status')
    if status == 'waiting' or status == 'held' then
      redis.call('ZADD', p .. 'out:' .. line, stamp(now + ring_again), member)
    else
      come_in(line, tenant, id)
    end
  end
end

-- The worker brings slots to that line, or to none where it is ''.
local function bring(holder, line, slots)
  local before = redis.call('HGET', p .. 'brings', holder)
  if before and before ~= line then redis.call('HDEL', p .. 'slots:' .. before, holder) end
  if line == '' then
    redis.call('HDEL', p .. 'brings', holder)
  else
    redis.call('HSET', p .. 'brings', holder, line)
    redis.call('HSET', p .. 'slots:' .. line, holder, slots)
    move(line)
  end
end
