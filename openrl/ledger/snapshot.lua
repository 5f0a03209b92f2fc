-- ARGV[3] run  [4] lease epoch  [5] turn  [6] key of the snapshot -> word, bodies, key of the one before ('' for none)
local run, turn = ARGV[3], tonumber(ARGV[5])
local at = p .. 'lease:' .. run
local row = redis.call('HMGET', at, 'epoch', 'snapshot', 'snapshot_turn')
if row[1] ~= ARGV[4] then return { 'lost', bodies, '' } end
if turn >= next_turn(run) then return { 'early', bodies, '' } end
if row[2] == ARGV[6] then return { 'again', bodies, '' } end
redis.call('HSET', at, 'snapshot', ARGV[6], 'snapshot_turn', turn)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', p .. 'journal:' .. run, '-inf', turn)) do
  local key = p .. 'op:' .. id
  if redis.call('HGET', key, 'body_at') == 'shelf' then bodies[#bodies + 1] = id end
  redis.call('HDEL', key, 'body', 'body_at')
  redis.call('ZREM', p .. 'journal:' .. run, id)
end
return { 'kept', bodies, row[2] or '' }
