-- ARGV[3] holder  [4...] runs whose leases it may hold -> bells: of the ops that anybody may work on now
redis.call('ZREM', p .. 'holders', ARGV[3])
for i = 4, #ARGV do
  local id = op_at(ARGV[i], next_turn(ARGV[i]))
  if id and redis.call('HGET', p .. 'op:' .. id, 'status') == 'waiting' then ready(id) end
end
return bells
