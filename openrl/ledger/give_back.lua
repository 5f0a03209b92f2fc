-- ARGV[3] id  [4] epoch  [5] 1 if the attempt counts, else 0 -> word, bells
local id = ARGV[3]
if not holds(id, ARGV[4]) then return { 'lost', bells } end
if ARGV[5] == '0' then redis.call('HINCRBY', p .. 'op:' .. id, 'attempts', -1) end
redis.call('HSET', p .. 'op:' .. id, 'status', 'waiting', 'holder', '')
redis.call('ZREM', p .. 'held', id)
ready(id)
return { 'waiting', bells }
