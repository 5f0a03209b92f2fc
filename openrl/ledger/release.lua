-- ARGV[3] holder  [4...] runs whose leases it may hold -> bells: of the ops that anybody may work on now; runs released
local released = {}
for i = 4, #ARGV do
  local run = ARGV[i]
  local id = op_at(run, next_turn(run))
  local held = id and redis.call('HGET', p .. 'op:' .. id, 'status') == 'held'
  if not held and redis.call('HGET', p .. 'lease:' .. run, 'holder') == ARGV[3] then
    vacate(run, ARGV[3])
    released[#released + 1] = run
  end
end
return { bells, released }
