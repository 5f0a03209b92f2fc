-- ARGV[3] max_attempts  [4] gap_seconds  [5] keep_seconds  [6] most of each kind to put right in one call
-- [7] failure of a worn out op  [8] seconds that the use of policy versions is remembered
-- [9] most members of joins to look at
-- -> bells, bodies, rung again, taken back, given up, gaps skipped, forgotten, moved in lines, joins let go,
-- (id, epoch) of results to leave the shelf
local rung, taken, given_up, gaps, forgotten, moved, results = 0, 0, 0, 0, 0, 0, {}
local keep_seconds = tonumber(ARGV[5])

local function due(index, since)
  return redis.call('ZRANGEBYSCORE', p .. index, '-inf', stamp(since), 'LIMIT', 0, ARGV[6])
end

-- Bells before holds: what is taken back below has just been rung.
-- The pause doubles up to eightfold: in a long queue a bell is more likely to be far back than lost.
for _, id in ipairs(due('ready', now)) do
  local rings = redis.call('HINCRBY', p .. 'op:' .. id, 'rings', 1)
  redis.call('ZADD', p .. 'ready', stamp(now + ring_again * 2 ^ math.min(rings, 3)), id)
  ring(id)
  rung = rung + 1
end

-- Their runs' ops may have been rung at the dead alone.
for _, holder in ipairs(due('holders', now)) do bury(holder) end

for _, id in ipairs(due('held', now)) do
  if tonumber(redis.call('HGET', p .. 'op:' .. id, 'attempts')) >= tonumber(ARGV[3]) then
    settle(id, 'failed', false, 'failure', ARGV[7])
    given_up = given_up + 1
  else
    redis.call('HSET', p .. 'op:' .. id, 'status', 'waiting', 'holder', '')
    redis.call('ZREM', p .. 'held', id)
    ready(id)
    taken = taken + 1
  end
end

for _, run in ipairs(due('gaps', now - tonumber(ARGV[4]))) do
  local behind = tonumber(redis.call('ZRANGE', p .. 'turns:' .. run, 0, 0, 'WITHSCORES')[2])
  for _, turn in ipairs(redis.call('SMEMBERS', p .. 'skips:' .. run)) do
    if tonumber(turn) < behind then redis.call('SREM', p .. 'skips:' .. run, turn) end
  end
  reach(run, behind)
  gaps = gaps + 1
end

for _, line in ipairs(redis.call('SMEMBERS', p .. 'lines')) do
  audit(line, ARGV[6])
  moved = moved + move(line)
end

local let_go = look_at_joins(ARGV[6], tonumber(ARGV[9]))
look_at_batches(ARGV[6], tonumber(ARGV[4]), keep_seconds)

-- When an op that is due to be forgotten must be looked at again, or nil: its run has no snapshot yet that covers it, an
-- op that waited for it may read it, or its batch is still there.
local function needed_until(id, run, batch)
  if run ~= '' and redis.call('ZSCORE', p .. 'journal:' .. run, id) then return now + keep_seconds end
  if redis.call('EXISTS', p .. 'joined:' .. id) == 1 then return now + keep_seconds end
  if not batch then return nil end
  local ends = batch_ends(batch, keep_seconds) or now + keep_seconds
  return ends > now and ends or nil
end

for _, id in ipairs(due('endings', now - keep_seconds)) do
  local row = redis.call('HMGET', p .. 'op:' .. id, 'once', 'result_at', 'settled_by', 'run', 'batch')
  local needed = needed_until(id, row[4], row[5])
  if needed then
    redis.call('ZADD', p .. 'endings', stamp(needed - keep_seconds), id)
  else
    redis.call('DEL', p .. 'op:' .. id, p .. 'once:' .. row[1])
    redis.call('ZREM', p .. 'endings', id)
    if row[2] == 'shelf' then
      results[#results + 1] = id
      results[#results + 1] = row[3]
    end
    forgotten = forgotten + 1
  end
end

for _, index in ipairs({ 'used', 'retired' }) do
  redis.call('ZREMRANGEBYSCORE', p .. index, '-inf', stamp(now - tonumber(ARGV[8])))
end

return { bells, bodies, rung, taken, given_up, gaps, forgotten, moved, let_go, results }
