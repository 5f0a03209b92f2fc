-- ARGV[3] max_waiting_per_tenant  [4] id  [5] once  [6] tenant  [7] run ('' for none)  [8] turn  [9] line ('' for none)
-- [10] its owner there  [11] policy that it writes or samples ('' for none)  [12...] the row
-- -> word, id of the first op, its status, bells
local id, once, tenant, run, turn = ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local line, policy = ARGV[9], ARGV[11]

local first = redis.call('GET', p .. 'once:' .. once)
if first then return { 'known', first, redis.call('HGET', p .. 'op:' .. first, 'status'), bells } end

local next = run ~= '' and next_turn(run)
if next and (turn < next or redis.call('SISMEMBER', p .. 'skips:' .. run, turn) == 1) then
  return { 'passed', id, '', bells }
end

if run == '' and policy ~= '' and redis.call('ZSCORE', p .. 'retired', policy) then
  return { 'retired', id, '', bells }
end

-- The very turn that others wait for is let in: refusing it would keep their places taken.
local awaited = turn == next and redis.call('ZSCORE', p .. 'gaps', run)
if not awaited and tonumber(redis.call('HGET', p .. 'tenants', tenant) or 0) >= tonumber(ARGV[3]) then
  return { 'full', id, '', bells }
end

redis.call('SET', p .. 'once:' .. once, id)
redis.call('HSET', p .. 'op:' .. id, 'status', 'waiting', 'attempts', 0, 'epoch', 0, 'once', once, 'tenant', tenant,
  'run', run, 'turn', ARGV[8], 'appended', stamp(now), unpack(ARGV, 12))
redis.call('HINCRBY', p .. 'tenants', tenant, 1)
if policy ~= '' then redis.call('HINCRBY', p .. 'needed', policy, 1) end
if line ~= '' then
  redis.call('HSET', p .. 'op:' .. id, 'line', line)
  line_up(line, tenant, ARGV[10], id)
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
return { 'new', id, 'waiting', bells }
