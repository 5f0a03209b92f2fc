-- ARGV[3] run -> word, bodies, key of its snapshot ('' for none)
local run = ARGV[3]
if redis.call('EXISTS', p .. 'turns:' .. run) == 1 then return { 'busy', bodies, '' } end
local snapshot = redis.call('HGET', p .. 'lease:' .. run, 'snapshot') or ''
for _, id in ipairs(redis.call('ZRANGE', p .. 'journal:' .. run, 0, -1)) do
  if redis.call('HGET', p .. 'op:' .. id, 'body_at') == 'shelf' then bodies[#bodies + 1] = id end
  redis.call('HDEL', p .. 'op:' .. id, 'body', 'body_at')
end
redis.call('DEL', p .. 'journal:' .. run)
vacate(run, redis.call('HGET', p .. 'lease:' .. run, 'holder') or '')
redis.call('HDEL', p .. 'lease:' .. run, 'snapshot', 'snapshot_turn')
redis.call('HINCRBY', p .. 'lease:' .. run, 'epoch', 1)  -- fences off whoever still has the run in memory
return { 'forgotten', bodies, snapshot }
