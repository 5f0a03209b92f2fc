-- KEYS[1] prefix  ARGV[1] seconds to add to the server's clock  [2] worker id  [3] its info  [4] ttl_seconds
-- [5] seconds a card is kept  [6] role and model  [7] the card  [8] role and model  [9] card  ...
--
-- workers, cards        hash  what was announced, as json
-- workers_until,
-- cards_until           zset  when it stops being true
local p = KEYS[1]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6 + tonumber(ARGV[1])

local function keep(what, name, value, seconds)
  redis.call('HSET', p .. what, name, value)
  redis.call('ZADD', p .. what .. '_until', string.format('%.6f', now + seconds), name)
end

local function forget(what)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', p .. what .. '_until', '-inf', string.format('%.6f', now))) do
    redis.call('HDEL', p .. what, name)
    redis.call('ZREM', p .. what .. '_until', name)
  end
end

keep('workers', ARGV[2], ARGV[3], tonumber(ARGV[4]))
for i = 6, #ARGV, 2 do keep('cards', ARGV[i], ARGV[i + 1], tonumber(ARGV[5])) end
forget('workers')
forget('cards')
