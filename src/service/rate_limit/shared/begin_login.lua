-- Begins a log-in, which counts as wrong: see account/login_limits.rs. KEYS: wrong passwords in a row of client and
-- address; the window of the address; whether the two are known. ARGV: how many in a row are free; how many an address
-- may have in a window; the longest pause, after which time wrong passwords are forgotten, and the length of a window,
-- in ms. Returns whether the password may be tried, and the ms to wait otherwise.
local free, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local longest, forgotten, length = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local count, before = 0, 0
if free > 0 then
    local failures = redis.call('HMGET', KEYS[1], 'count', 'last')
    count, before = tonumber(failures[1]) or 0, tonumber(failures[2]) or 0
    local pause = 0
    if count >= free then
        -- 1 s, 2 s, 4 s, ...
        pause = math.min(1000 * 2 ^ (count - free), longest)
    end
    -- The last one lies ahead where the clock has been set back.
    if before <= now and now < before + pause then
        redis.call('PEXPIRE', KEYS[1], forgotten)
        return {0, before + pause - now}
    end
end
local known = redis.call('EXISTS', KEYS[3]) == 1
if most > 0 and not known then
    local window = redis.call('HMGET', KEYS[2], 'counted', 'ends')
    local counted, ends = tonumber(window[1]), tonumber(window[2])
    if not ends or ends <= now or ends > now + length then
        counted, ends = 0, now + length
    end
    if counted >= most then
        if free > 0 then
            redis.call('HSET', KEYS[1], 'count', count, 'last', string.format('%.0f', now))
            redis.call('PEXPIRE', KEYS[1], forgotten)
        end
        return {0, ends - now}
    end
    redis.call('HSET', KEYS[2], 'counted', counted + 1, 'ends', string.format('%.0f', ends))
    redis.call('PEXPIREAT', KEYS[2], string.format('%.0f', ends))
end
if free > 0 then
    redis.call('HSET', KEYS[1], 'count', count + 1, 'last', string.format('%.0f', now))
    redis.call('PEXPIRE', KEYS[1], forgotten)
end
return {1, 0}
