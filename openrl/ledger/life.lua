-- ARGV[3] id -> nothing where it is unknown, else the time; appended rung rings claimed holder line queue; when it
-- settled; how many members it has, and (id, status) of the first of them, '' for one that is forgotten
local id = ARGV[3]
local row = redis.call('HMGET', p .. 'op:' .. id, 'appended', 'rung', 'rings', 'claimed', 'holder', 'line', 'queue',
  'bell', 'members')
if not row[1] then return {} end
local members = members_of(id)
local queue = row[7] or queue_of(row[8])
local life = { stamp(now), row[1], row[2], row[3], row[4], row[5], row[6], queue, redis.call('ZSCORE', p .. 'endings', id),
  tonumber(row[9] or #members) }
for n = 1, math.min(#members, MEMBERS_TOLD) do
  life[#life + 1] = members[n]
  life[#life + 1] = redis.call('HGET', p .. 'op:' .. members[n], 'status') or ''
end
return life
