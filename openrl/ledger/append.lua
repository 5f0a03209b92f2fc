-- ARGV[3] max_waiting_per_tenant, then of each op how many fields follow, and these:
-- [1] id  [2] once  [3] tenant  [4] run ('' for none)  [5] turn  [6] line ('' for none)  [7] its owner there
-- [8] policy that it writes or samples ('' for none)  [9] its join ('' for none)  [10] its batch ('' for none)
-- [11...] the row
-- -> of each op: word, id of the first op (or, where the word is stranger, of the member), its status; bells, bodies
local function append(op)
  local id, once, tenant, run, turn = op[1], op[2], op[3], op[4], tonumber(op[5])
  local line, policy, batch = op[6], op[8], op[10]
  local after = op[9] ~= '' and cmsgpack.unpack(op[9])

  local first = redis.call('GET', p .. 'once:' .. once)
  if first then return { 'known', first, redis.call('HGET', p .. 'op:' .. first, 'status') } end

  for _, member in ipairs(after and after.ops or {}) do
    if redis.call('HGET', p .. 'op:' .. member, 'tenant') ~= tenant then return { 'stranger', member, '' } end
  end

  local next = run ~= '' and next_turn(run)
  if next and (turn < next or redis.call('SISMEMBER', p .. 'skips:' .. run, turn) == 1) then return { 'passed', id, '' } end

  if run == '' and policy ~= '' and redis.call('ZSCORE', p .. 'retired', policy) then return { 'retired', id, '' } end

  -- The very turn that others wait for is let in: refusing it would keep their places taken.
  local awaited = turn == next and redis.call('ZSCORE', p .. 'gaps', run)
  local placed = batch ~= '' and take_place(batch)
  if not awaited and not placed and unsettled_of(tenant) >= tonumber(ARGV[3]) then return { 'full', id, '' } end

  redis.call('SET', p .. 'once:' .. once, id)
  redis.call('HSET', p .. 'op:' .. id, 'status', 'waiting', 'attempts', 0, 'epoch', 0, 'once', once, 'tenant', tenant,
    'run', run, 'turn', op[5], 'appended', stamp(now), unpack(op, 11))
  if not placed then count_tenant(tenant, 1) end
  if batch ~= '' then note_appended(batch, id) end
  if policy ~= '' then redis.call('HINCRBY', p .. 'needed', policy, 1) end
  if after then
    redis.call('HSET', p .. 'op:' .. id, 'after', op[9], 'on_failure', after.on_failure)
    local failed = join(id, after)
    if failed then
      settle(id, 'failed', false, 'failure', failure_through(failed))
      return { 'new', id, 'failed' }
    end
  end
  if line ~= '' then
    redis.call('HSET', p .. 'op:' .. id, 'line', line)
    if redis.call('HEXISTS', p .. 'op:' .. id, 'pending') == 0 then line_up(line, tenant, op[7], id) end
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
  return { 'new', id, 'waiting' }
end

local answers, at = {}, 4
while at <= #ARGV do
  local fields = tonumber(ARGV[at])
  answers[#answers + 1] = append({ unpack(ARGV, at + 1, at + fields) })
  at = at + 1 + fields
end
return { answers, bells, bodies }
