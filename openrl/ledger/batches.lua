-- The fourth head of every ledger script: batches. A batch keeps room among its tenant's unsettled ops for all that it
-- will have, so that it is let in whole or not at all; each op that comes takes one place.
--
-- batch:<id>        hash  tenant groups ops digest note created; appended unsettled reserved groups_settled last;
--                         cancelled: the failure of what had not settled when it was closed;
--                         `t:<name>` what its groups added up to; `failed:<error>` groups that ended without a result
-- batch:<id>:order  list  ids of the ops that each end a group, as they settled
-- batch:<id>:ops    list  ids of its ops, as they came; gone while none of them is unsettled
-- batches           zset  ids, by the time to look after them
local function count_tenant(tenant, by)
  if redis.call('HINCRBY', p .. 'tenants', tenant, by) <= 0 then redis.call('HDEL', p .. 'tenants', tenant) end
end

local function unsettled_of(tenant) return tonumber(redis.call('HGET', p .. 'tenants', tenant) or 0) end

local function look_later(batch, seconds) redis.call('ZADD', p .. 'batches', stamp(now + seconds), batch) end

-- An op of the batch comes; answers whether it had a place.
local function take_place(batch)
  local key = p .. 'batch:' .. batch
  if tonumber(redis.call('HGET', key, 'reserved') or 0) <= 0 then return false end
  redis.call('HINCRBY', key, 'reserved', -1)
  return true
end

local function note_appended(batch, id)
  local key = p .. 'batch:' .. batch
  redis.call('RPUSH', key .. ':ops', id)
  redis.call('HINCRBY', key, 'appended', 1)
  redis.call('HINCRBY', key, 'unsettled', 1)
  redis.call('HSET', key, 'last', stamp(now))
  if redis.call('HEXISTS', key, 'cancelled') == 1 then look_later(batch, 0) end
end

-- The places that nothing came for are anybody's again.
local function give_up_places(batch)
  local key = p .. 'batch:' .. batch
  local row = redis.call('HMGET', key, 'tenant', 'reserved')
  if tonumber(row[2] or 0) > 0 then count_tenant(row[1], -tonumber(row[2])) end
  redis.call('HSET', key, 'reserved', 0)
end

local function add_up(key, sums)
  for name, amount in pairs(sums.add) do redis.call('HINCRBYFLOAT', key, 't:' .. name, string.format('%.17g', amount)) end
  for _, bound in ipairs({ { 'least', math.min }, { 'most', math.max } }) do
    for name, value in pairs(sums[bound[1]]) do
      local before = tonumber(redis.call('HGET', key, 't:' .. name) or value)
      redis.call('HSET', key, 't:' .. name, string.format('%.17g', bound[2](before, value)))
    end
  end
end

local function end_group(key, id)
  local row = redis.call('HMGET', p .. 'op:' .. id, 'status', 'failure', 'sums')
  redis.call('HINCRBY', key, 'groups_settled', 1)
  redis.call('RPUSH', key .. ':order', id)
  if row[1] == 'failed' then redis.call('HINCRBY', key, 'failed:' .. cmsgpack.unpack(row[2]).error, 1) end
  if row[3] then add_up(key, cmsgpack.unpack(row[3])) end
end

local function require_number(what, number)
  if not number or number - number ~= 0 then error(what .. ' of the batch would be no number') end
end

-- Raises, while nothing is written, where an ending is none that can be told, or added up where it ends a group of the
-- batch (false: it does not).
require_readable = function(batch, ...)
  local ending, fields = {}, { ... }
  for at = 1, #fields, 2 do ending[fields[at]] = fields[at + 1] end
  if ending.failure then assert(cmsgpack.unpack(ending.failure).error) end
  if not batch or not ending.sums then return end
  local sums = cmsgpack.unpack(ending.sums)
  for _, how in ipairs({ 'add', 'least', 'most' }) do
    for name, amount in pairs(sums[how]) do
      local before = redis.call('HGET', p .. 'batch:' .. batch, 't:' .. name) or 0
      require_number(name, tonumber(before) and tonumber(before) + amount)
    end
  end
end

note_settled = function(batch, id, ends_group)
  local key = p .. 'batch:' .. batch
  if redis.call('EXISTS', key) == 0 then return end
  if redis.call('HINCRBY', key, 'unsettled', -1) == 0 then redis.call('DEL', key .. ':ops') end
  redis.call('HSET', key, 'last', stamp(now))
  if not ends_group then return end
  end_group(key, id)
  redis.call('PUBLISH', p .. 'settled', batch)
end

-- End so many ops of a closed batch, the last ones first: those in front are not rung in their place. Answers how many
-- are left to look at.
local function call_off(batch, most)
  local key = p .. 'batch:' .. batch
  local failure = redis.call('HGET', key, 'cancelled')
  if not failure then return 0 end
  local ids = redis.call('LRANGE', key .. ':ops', -most, -1)
  redis.call('LTRIM', key .. ':ops', 0, -most - 1)
  for at = #ids, 1, -1 do
    local status = redis.call('HGET', p .. 'op:' .. ids[at], 'status')
    if status == 'waiting' or status == 'held' then settle(ids[at], 'failed', false, 'failure', failure) end
  end
  return redis.call('LLEN', key .. ':ops')
end

-- When a batch expires, or nil where an op of it is under way.
local function batch_ends(batch, keep_seconds)
  local row = redis.call('HMGET', p .. 'batch:' .. batch, 'unsettled', 'last')
  if not row[1] then return now end
  if tonumber(row[1]) > 0 then return nil end
  return tonumber(row[2]) + keep_seconds
end

local function look_at_batches(most, gap_seconds, keep_seconds)
  local due = redis.call('ZRANGEBYSCORE', p .. 'batches', '-inf', stamp(now), 'LIMIT', 0, most)
  for _, batch in ipairs(due) do
    local key = p .. 'batch:' .. batch
    if tonumber(redis.call('HGET', key, 'last') or 0) + gap_seconds <= now then give_up_places(batch) end
    local left = call_off(batch, most)
    local ends = batch_ends(batch, keep_seconds)
    if ends and ends <= now then
      redis.call('DEL', key, key .. ':order', key .. ':ops')
      redis.call('ZREM', p .. 'batches', batch)
    else
      look_later(batch, left > 0 and 0 or math.max(gap_seconds, 1))
    end
  end
end
