-- ARGV[3] id  [4] holder  [5] hold_seconds  [6] max_attempts  [7] failure of a worn out op
-- -> word, bells, bodies, epoch, attempt, row (kind tenant run turn sampler number body_at body)
local id = ARGV[3]
local key = p .. 'op:' .. id
local row = redis.call('HMGET', key, 'status', 'run', 'turn', 'attempts')
if row[1] ~= 'waiting' then return { 'no', bells, bodies } end
if row[2] ~= '' and tonumber(row[3]) ~= next_turn(row[2]) then return { 'no', bells, bodies } end
if tonumber(row[4]) >= tonumber(ARGV[6]) then
  settle(id, 'failed', 'failure', ARGV[7])
  return { 'worn', bells, bodies }
end
redis.call('HSET', key, 'status', 'held', 'holder', ARGV[4])
redis.call('ZREM', p .. 'ready', id)
redis.call('ZADD', p .. 'held', stamp(now + tonumber(ARGV[5])), id)
return { 'held', bells, bodies, redis.call('HINCRBY', key, 'epoch', 1), redis.call('HINCRBY', key, 'attempts', 1),
  redis.call('HMGET', key, 'kind', 'tenant', 'run', 'turn', 'sampler', 'number', 'body_at', 'body') }
