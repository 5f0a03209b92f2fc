-- ARGV[3] max_waiting_per_tenant  [4] id  [5] once  [6] tenant  [7] run ('' for none)  [8] turn  [9] line ('' for none)
-- [10] its owner there  [11] policy that it writes or samples ('' for none)  [12] its join ('' for none)
-- [13] its batch ('' for none)  [14...] the row
-- -> word, id of the first op (or, where the word is stranger, of the member), its status, bells, bodies
local id, once, tenant, run, turn = ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local line, policy, batch = ARGV[9], ARGV[11], ARGV[13]
local after = ARGV[12] ~= '' and cmsgpack.unpack(ARGV[12])

local first = redis.call('GET', p .. 'once:' .. once)
if first then return { 'known', first, redis.call('HGET', p .. 'op:' .. first, 'status'), bells, bodies } end

for _, member in ipairs(after and after.ops or {}) do
  if redis.call('HGET', p .. 'op:' .. member, 'tenant') ~= tenant then return { 'stranger', member, '', bells, bodies } end
end

local next = run ~= '' and next_turn(run)
if next and (turn < next or redis.call('SISMEMBER', p .. 'skips:' .. run, turn) == 1) then
  return { 'passed', id, '', bells, bodies }
end

if run == '' and policy ~= '' and redis.call('ZSCORE', p .. 'retired', policy) then
  return { 'retired', id, '', bells, bodies }
end

-- The very turn that others wait for is let in: refusing it would keep their places taken.
local awaited = turn == next and redis.call('ZSCORE', p .. 'gaps', run)
local placed = batch ~= '' and take_place(batch)
if not awaited and not placed and unsettled_of(tenant) >= tonumber(ARGV[3]) then
  return { 'full', id, '', bells, bodies }
end

redis.call('SET', p .. 'once:' .. once, id)
redis.call('HSET', p .. 'op:' .. id, 'status', 'waiting', 'attempts', 0, 'epoch', 0, 'once', once, 'tenant', tenant,
  'run', run, 'turn', ARGV[8], 'appended', stamp(now), unpack(ARGV, 14))
if not placed then count_tenant(tenant, 1) end
if batch ~= '' then note_appended(batch, id) end
if policy ~= '' then redis.call('HINCRBY', p .. 'needed', policy, 1) end
if after then
  redis.call('HSET', p .. 'op:' .. id, 'after', ARGV[12], 'on_failure', after.on_failure)
  local failed = join(id, after)
  if failed then
    settle(id, 'failed', false, 'failure', failure_through(failed))
    return { 'new', id, 'failed', bells, bodies }
  end
end
if line ~= '' then
  redis.call('HSET', p .. 'op:' .. id, 'line', line)
  if redis.call('HEXISTS', p .. 'op:' .. id, 'pending') == 0 then line_up(line, tenant, ARGV[10], id) end
elseif not next then
  ready(id)
else
  redis.call('ZADD', p .. 'turns:' .. run, turn, id)
  if turn == next then
    redis.call('ZREM', p .. 'gaps', run)
    ready(id)
  elseif not op_at(run, next) then
    gap(run)
  end
end
return { 'new', id, 'waiting', bells, bodies }
