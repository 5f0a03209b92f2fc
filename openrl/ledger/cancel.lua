-- ARGV[3] id  [4] failure -> bells, bodies
local status = redis.call('HGET', p .. 'op:' .. ARGV[3], 'status')
if status == 'waiting' or status == 'held' then settle(ARGV[3], 'failed', false, 'failure', ARGV[4]) end
return { bells, bodies }
