-- The head of every ledger script: the clock, and how an op becomes ready, settles, and lets its run go on.
--
-- KEYS[1]  prefix of all keys. ARGV[1] seconds to add to the server's clock. ARGV[2] ring_again_seconds.
--
-- op:<id>      hash    kind tenant once run turn sampler number policy batch group label appended status attempts epoch
--                      rings and rung (once it was rung: how many times again, and when it last became ready) holder
--                      claimed (when it last was) after; while unsettled also body_at body bell line (of those that
--                      stand in one) on_failure pending; when settled also queue result_at result result_kind failure
--                      sums members (how many, where `after` has kept the first of them only)
--                      (and, in a journal, body_at body)
-- once:<once>  string  id of the first op appended with it
-- tenants      hash    tenant -> unsettled ops
-- next         hash    run -> the turn it has come to (absent: 0); kept for ever, some 100 bytes a run
-- turns:<run>  zset    ids of unsettled ops by turn
-- skips:<run>  set     turns settled before the run came to them
-- journal:<run> zset   ids of settled ops that changed the run since its newest snapshot, by turn
-- lease:<run>  hash    holder epoch snapshot snapshot_turn; kept for ever, some 200 bytes a run
-- holders      zset    workers by the time their leases lapse
-- runs:<holder> zset   runs whose lease it has, by the time of their last claim
-- takers       hash    worker -> the queue whose fresh runs may be placed on it
-- needed       hash    policy version -> unsettled ops that write or sample it
-- used         zset    policy versions by the time the last such op settled
-- retired      zset    policy versions that are deleted or about to be, by the time they were given up
-- gaps         zset    runs that wait for a missing turn with ops behind it, by the time these became blocked
-- ready        zset    ids of runnable ops nobody holds, by the time to ring them again
-- held         zset    ids of held ops, by the time their hold lapses
-- endings      zset    ids of settled ops, by the time they settled
-- settled      channel ids of ops as they settle
local p = KEYS[1]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6 + tonumber(ARGV[1])
local ring_again = tonumber(ARGV[2])

local bells = {}   -- to ring when the script is through: a bell, then the worker to ring it at ('' for any)
local bodies = {}  -- ids of ops whose body is to leave the shelf

-- Lua would print a time with 14 digits, which ends at a tenth of a millisecond.
local function stamp(seconds) return string.format('%.6f', seconds) end

local function next_turn(run) return tonumber(redis.call('HGET', p .. 'next', run) or 0) end

local function op_at(run, turn)
  return redis.call('ZRANGEBYSCORE', p .. 'turns:' .. run, turn, turn, 'LIMIT', 0, 1)[1]
end

local function alive(holder)
  local until_then = redis.call('ZSCORE', p .. 'holders', holder)
  return until_then and tonumber(until_then) > now
end

-- Who holds the run's lease, '' for nobody.
local function holder_of(run)
  local holder = run ~= '' and redis.call('HGET', p .. 'lease:' .. run, 'holder')
  return holder and alive(holder) and holder or ''
end

local function queue_of(bell) return cmsgpack.unpack(bell).queue end

local function ring(id)
  local row = redis.call('HMGET', p .. 'op:' .. id, 'bell', 'run')
  bells[#bells + 1] = row[1]
  bells[#bells + 1] = holder_of(row[2])
end

local function ready(id)
  if redis.call('HEXISTS', p .. 'op:' .. id, 'pending') == 1 then return end  -- its members will have it rung
  redis.call('HSET', p .. 'op:' .. id, 'rings', 0, 'rung', stamp(now))
  redis.call('ZADD', p .. 'ready', stamp(now + ring_again), id)
  ring(id)
end

-- The clock of a gap runs from when an op first stood behind it, even if other missing turns come in meanwhile.
local function gap(run)
  if redis.call('EXISTS', p .. 'turns:' .. run) == 1 then
    redis.call('ZADD', p .. 'gaps', 'NX', stamp(now), run)
  else
    redis.call('ZREM', p .. 'gaps', run)
  end
end

-- The run has come to `turn`, or past it where the turns from there on were settled before.
local function reach(run, turn)
  while redis.call('SREM', p .. 'skips:' .. run, turn) == 1 do turn = turn + 1 end
  redis.call('HSET', p .. 'next', run, turn)
  local id = op_at(run, turn)
  if id then
    redis.call('ZREM', p .. 'gaps', run)
    ready(id)
  else
    gap(run)
  end
end

local function pass(run, turn)
  local next = next_turn(run)
  if turn == next then
    reach(run, turn + 1)
  elseif turn > next then
    redis.call('SADD', p .. 'skips:' .. run, turn)
    if redis.call('ZSCORE', p .. 'gaps', run) then gap(run) end
  end
end

local leave_line  -- an op's place in its line ends; in lines.lua, as `ready` above is needed there
local tell_joined, leave_joins  -- of joins.lua
local note_settled, require_readable  -- of batches.lua

-- `...` are field-value pairs that tell how the op ended. The row keeps no bell from here on but its queue, and no body
-- either, unless a worker `applied` it to a run: that may have to be done again from the run's last snapshot.
local function settle(id, status, applied, ...)
  local key = p .. 'op:' .. id
  local row = redis.call('HMGET', key, 'tenant', 'run', 'turn', 'body_at', 'line', 'sampler', 'rings', 'pending', 'after',
    'batch', 'group', 'policy', 'bell')
  local tenant, run, turn, body_at, line, policy = row[1], row[2], row[3], row[4], row[5], row[12]
  require_readable(row[11] and row[10], ...)
  redis.call('HSET', key, 'status', status, 'queue', queue_of(row[13]), ...)
  if row[9] then leave_joins(id) end
  redis.call('HDEL', key, 'bell', 'line', 'on_failure', 'pending')
  redis.call('ZREM', p .. 'ready', id)
  redis.call('ZREM', p .. 'held', id)
  redis.call('ZADD', p .. 'endings', stamp(now), id)
  if redis.call('HINCRBY', p .. 'tenants', tenant, -1) <= 0 then redis.call('HDEL', p .. 'tenants', tenant) end
  if policy then
    if redis.call('HINCRBY', p .. 'needed', policy, -1) <= 0 then redis.call('HDEL', p .. 'needed', policy) end
    redis.call('ZADD', p .. 'used', stamp(now), policy)
  end
  if applied and run ~= '' then
    redis.call('ZADD', p .. 'journal:' .. run, turn, id)
  else
    redis.call('HDEL', key, 'body', 'body_at')
    if body_at == 'shelf' then bodies[#bodies + 1] = id end
  end
  if run ~= '' then
    redis.call('ZREM', p .. 'turns:' .. run, id)
    pass(run, tonumber(turn))
  end
  if line and not row[8] then leave_line(line, tenant, row[6] or row[10] or '', id, row[7]) end
  if row[10] then note_settled(row[10], id, row[11]) end
  redis.call('PUBLISH', p .. 'settled', id)
  tell_joined(id, status)
end

-- The lease of a run ends; what waits in it is for whoever comes first.
local function vacate(run, holder)
  redis.call('ZREM', p .. 'runs:' .. holder, run)
  local at = p .. 'lease:' .. run
  if redis.call('HGET', at, 'holder') ~= holder then return end
  redis.call('HDEL', at, 'holder')
  local id = op_at(run, next_turn(run))
  if id and redis.call('HGET', p .. 'op:' .. id, 'status') == 'waiting' then ready(id) end
end

-- All leases of a worker end.
local function bury(holder)
  redis.call('ZREM', p .. 'holders', holder)
  redis.call('HDEL', p .. 'takers', holder)
  local line = redis.call('HGET', p .. 'brings', holder)
  if line then redis.call('HDEL', p .. 'slots:' .. line, holder) end
  redis.call('HDEL', p .. 'brings', holder)
  for _, run in ipairs(redis.call('ZRANGE', p .. 'runs:' .. holder, 0, -1)) do vacate(run, holder) end
end

-- The other live workers that take from the same queue as `holder`; none where it takes from none.
local function peers(holder)
  local queue = redis.call('HGET', p .. 'takers', holder)
  local out = {}
  for _, other in ipairs(queue and redis.call('ZRANGEBYSCORE', p .. 'holders', '(' .. stamp(now), '+inf') or {}) do
    if other ~= holder and redis.call('HGET', p .. 'takers', other) == queue then out[#out + 1] = other end
  end
  return out
end

-- Runs it has that had an op within so many seconds.
local function load_of(holder, active_seconds)
  return redis.call('ZCOUNT', p .. 'runs:' .. holder, stamp(now - tonumber(active_seconds)), '+inf')
end

local function holds(id, epoch)
  local row = redis.call('HMGET', p .. 'op:' .. id, 'status', 'epoch')
  return row[1] == 'held' and row[2] == epoch
end
