-- ARGV[3] id  [4] holder  [5] hold_seconds  [6] max_attempts  [7] failure of a worn out op
-- [8] seconds after which a run without an op weighs nothing
-- -> word, bells, bodies, epoch, attempt, row (kind tenant run turn sampler number batch label after body_at body),
--    lease (epoch snapshot snapshot_turn; empty for an op of no run), seconds since it was appended
local id = ARGV[3]

-- Who has fewer runs than the one that asks.
local function freer(holder)
  local least, found = load_of(holder, ARGV[8]), nil
  for _, other in ipairs(peers(holder)) do
    local load = load_of(other, ARGV[8])
    if load < least then least, found = load, other end
  end
  return found
end

local key = p .. 'op:' .. id
local row = redis.call('HMGET', key, 'status', 'run', 'turn', 'attempts', 'rings', 'bell', 'line', 'tenant', 'pending')
if row[1] ~= 'waiting' then return { 'no', bells, bodies } end
if row[7] and not row[5] then return { 'no', bells, bodies } end  -- it stands in line
if row[9] then return { 'no', bells, bodies } end
if row[2] ~= '' and tonumber(row[3]) ~= next_turn(row[2]) then return { 'no', bells, bodies } end
if tonumber(row[4]) >= tonumber(ARGV[6]) then
  settle(id, 'failed', false, 'failure', ARGV[7])
  return { 'worn', bells, bodies }
end
local lease = {}
if row[2] ~= '' then
  local holder = holder_of(row[2])
  if holder ~= '' and holder ~= ARGV[4] then
    ring(id)
    return { 'elsewhere', bells, bodies }
  end
  local at = p .. 'lease:' .. row[2]
  local before = redis.call('HGET', at, 'holder')
  if before ~= ARGV[4] then
    -- An op that had to be rung again is for whoever hears it: the freer worker may be deaf.
    local other = row[5] == '0' and freer(ARGV[4])
    if other then
      bells[1], bells[2] = row[6], other
      return { 'elsewhere', bells, bodies }
    end
    if before then redis.call('ZREM', p .. 'runs:' .. before, row[2]) end
    redis.call('HSET', at, 'holder', ARGV[4])
    redis.call('HINCRBY', at, 'epoch', 1)
  end
  redis.call('ZADD', p .. 'runs:' .. ARGV[4], stamp(now), row[2])
  redis.call('ZADD', p .. 'holders', stamp(now + tonumber(ARGV[5])), ARGV[4])
  lease = redis.call('HMGET', at, 'epoch', 'snapshot', 'snapshot_turn')
end
redis.call('HSET', key, 'status', 'held', 'holder', ARGV[4], 'claimed', stamp(now))
redis.call('ZREM', p .. 'ready', id)
if row[7] then answered(row[7], row[8], id) end
redis.call('ZADD', p .. 'held', stamp(now + tonumber(ARGV[5])), id)
return { 'held', bells, bodies, redis.call('HINCRBY', key, 'epoch', 1), redis.call('HINCRBY', key, 'attempts', 1),
  redis.call('HMGET', key, 'kind', 'tenant', 'run', 'turn', 'sampler', 'number', 'batch', 'label', 'after', 'body_at',
    'body'), lease,
  stamp(now - tonumber(redis.call('HGET', key, 'appended') or now)) }
