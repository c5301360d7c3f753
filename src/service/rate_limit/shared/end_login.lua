-- Ends a log-in that was not wrong: see begin_login.lua. KEYS: as there. ARGV: 1 if the password was right, 0 if it was
-- not looked at; for how long client and address are known then, in ms.
if ARGV[1] == '1' then
    redis.call('DEL', KEYS[1])
elseif (tonumber(redis.call('HGET', KEYS[1], 'count')) or 0) > 0 then
    redis.call('HINCRBY', KEYS[1], 'count', -1)
end
if redis.call('EXISTS', KEYS[3]) == 0 and (tonumber(redis.call('HGET', KEYS[2], 'counted')) or 0) > 0 then
    redis.call('HINCRBY', KEYS[2], 'counted', -1)
end
if ARGV[1] == '1' then
    redis.call('SET', KEYS[3], 1, 'PX', ARGV[2])
end
return 1
