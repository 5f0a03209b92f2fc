-- ARGV[3] hold_seconds  [4] id  [5] epoch  [6] id  [7] epoch  ... -> ids that are lost
local until_then = stamp(now + tonumber(ARGV[3]))
local lost = {}
for i = 4, #ARGV, 2 do
  if holds(ARGV[i], ARGV[i + 1]) then
    redis.call('ZADD', p .. 'held', until_then, ARGV[i])
  else
    lost[#lost + 1] = ARGV[i]
  end
end
return lost
