-- ARGV[3] holder -> runs it has, then those of each live worker that takes from the same queue
local out = { load_of(ARGV[3]) }
for _, other in ipairs(peers(ARGV[3])) do out[#out + 1] = load_of(other) end
return out
