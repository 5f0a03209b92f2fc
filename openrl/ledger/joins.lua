-- The third head of every ledger script: joins. An op that names others in `after` becomes ready, or comes to its line,
-- when the last of them settles; until then its row says how many are `pending`.
--
-- joined:<id>  zset  ids of unsettled ops that wait for it or read how it ended, as they came; its row is kept for them
-- joins        zset  ids of ops with members pending, by the time to look whether these still are
local LOOK_AT_JOINS = 60

local function members_of(id)
  local after = redis.call('HGET', p .. 'op:' .. id, 'after')
  return after and cmsgpack.unpack(after).ops or {}
end

local function failure_through(member)
  local failure = cmsgpack.unpack(redis.call('HGET', p .. 'op:' .. member, 'failure'))
  local message = 'request ' .. member .. ', which this one waited for, failed: ' .. failure.message
  return cmsgpack.pack({ error = 'MemberFailed', message = message, category = failure.category })
end

local function come_free(id)
  local key = p .. 'op:' .. id
  if redis.call('HDEL', key, 'pending') == 0 then return end
  redis.call('ZREM', p .. 'joins', id)
  local row = redis.call('HMGET', key, 'line', 'tenant', 'run', 'turn', 'sampler', 'batch')
  if row[1] then
    line_up(row[1], row[2], row[5] or row[6] or '', id)
  elseif row[3] == '' or tonumber(row[4]) == next_turn(row[3]) then
    ready(id)
  end
end

-- Enter a new op with its members; answers one of them that has failed where that is the end of the op too.
local function join(id, after)
  local pending, failed = 0, nil
  for _, member in ipairs(after.ops) do
    local status = redis.call('HGET', p .. 'op:' .. member, 'status')
    if status == 'failed' then failed = failed or member end
    if status == 'waiting' or status == 'held' then pending = pending + 1 end
    redis.call('ZADD', p .. 'joined:' .. member, place(), id)
  end
  if pending > 0 then
    redis.call('HSET', p .. 'op:' .. id, 'pending', pending)
    redis.call('ZADD', p .. 'joins', stamp(now + LOOK_AT_JOINS), id)
  end
  return after.on_failure == 'fail' and failed
end

-- One of an op's members has failed, and with it the op; or all have settled.
local doomed, dooming = {}, false
local function doom()
  if dooming then return end  -- not one inside the other: a row of joins may be long
  dooming = true
  while #doomed > 0 do
    local id, member = unpack(table.remove(doomed))
    local status = redis.call('HGET', p .. 'op:' .. id, 'status')
    if status == 'waiting' then settle(id, 'failed', false, 'failure', failure_through(member)) end
  end
  dooming = false
end

tell_joined = function(id, status)
  for _, other in ipairs(redis.call('ZRANGE', p .. 'joined:' .. id, 0, -1)) do
    local key = p .. 'op:' .. other
    if redis.call('HEXISTS', key, 'pending') == 1 then
      if status == 'failed' and redis.call('HGET', key, 'on_failure') == 'fail' then
        doomed[#doomed + 1] = { other, id }
      elseif redis.call('HINCRBY', key, 'pending', -1) == 0 then
        come_free(other)
      end
    end
  end
  doom()
end

leave_joins = function(id)
  redis.call('ZREM', p .. 'joins', id)
  local members = members_of(id)
  for _, member in ipairs(members) do redis.call('ZREM', p .. 'joined:' .. member, id) end
  if #members <= MEMBERS_TOLD then return end
  local first = { unpack(members, 1, MEMBERS_TOLD) }
  redis.call('HSET', p .. 'op:' .. id, 'after', cmsgpack.pack({ ops = first }), 'members', #members)
end

-- What waits though its members have settled (a worker of a version without joins settled them) is let go.
local function look_at_joins(most_ops, most_members)
  local found = 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', p .. 'joins', '-inf', stamp(now), 'LIMIT', 0, most_ops)) do
    local key, pending, failed = p .. 'op:' .. id, 0, nil
    for _, member in ipairs(members_of(id)) do
      local status = redis.call('HGET', p .. 'op:' .. member, 'status')
      if status == 'failed' then failed = failed or member end
      if status == 'waiting' or status == 'held' then pending = pending + 1 end
      most_members = most_members - 1
    end
    if failed and redis.call('HGET', key, 'on_failure') == 'fail' then
      doomed[#doomed + 1] = { id, failed }
      found = found + 1
    elseif pending == 0 then
      come_free(id)
      found = found + 1
    else
      redis.call('HSET', key, 'pending', pending)
      redis.call('ZADD', p .. 'joins', stamp(now + LOOK_AT_JOINS), id)
    end
    if most_members <= 0 then break end
  end
  doom()
  return found
end
