-- ARGV[3] id  [4] most members to tell -> nothing where it is unknown, else the time; appended claimed holder rings
-- line; when it settled; how many members it has, and (id, status) of the first of them
local id = ARGV[3]
local row = redis.call('HMGET', p .. 'op:' .. id, 'appended', 'claimed', 'holder', 'rings', 'line')
if not row[1] then return {} end
local members = members_of(id)
local life = { stamp(now), row[1], row[2], row[3], row[4], row[5], redis.call('ZSCORE', p .. 'endings', id), #members }
for n = 1, math.min(#members, tonumber(ARGV[4])) do
  life[#life + 1] = members[n]
  life[#life + 1] = redis.call('HGET', p .. 'op:' .. members[n], 'status') or ''
end
return life
