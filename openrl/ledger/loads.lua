-- ARGV[3] holder  [4] seconds after which a run without an op weighs nothing
-- -> runs it has, then those of each live worker that takes from the same queue
local out = { load_of(ARGV[3], ARGV[4]) }
for _, other in ipairs(peers(ARGV[3])) do out[#out + 1] = load_of(other, ARGV[4]) end
return out
