-- ARGV[3] run  [4] turn -> bells
local run, turn = ARGV[3], tonumber(ARGV[4])
if not op_at(run, turn) then pass(run, turn) end
return bells
