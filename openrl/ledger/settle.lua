-- ARGV[3] id  [4] epoch  [5] done or failed  [6] 1 if a recovery has to do it again, else 0
-- [7...] fields that tell how it ended -> word, bells, bodies
local id, epoch, status = ARGV[3], ARGV[4], ARGV[5]
if not holds(id, epoch) then
  -- The same settlement again: its first answer was lost on the way.
  local row = redis.call('HMGET', p .. 'op:' .. id, 'status', 'settled_by')
  if row[1] == status and row[2] == epoch then return { 'again', bells, bodies } end
  return { 'lost', bells, bodies }
end
settle(id, status, ARGV[6] == '1', 'settled_by', epoch, unpack(ARGV, 7))
return { 'settled', bells, bodies }
