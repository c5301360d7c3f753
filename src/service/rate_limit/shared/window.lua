-- Counts a request in a fixed window, which begins with its first one. KEYS: the window. ARGV: requests per window; its
-- length in ms; 1 to count, 0 to look. Returns whether the request is within the limit, how many are counted, when the
-- window ends, and now.
local limit, length, counts = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local window = redis.call('HMGET', KEYS[1], 'counted', 'ends')
local counted, ends = tonumber(window[1]), tonumber(window[2])
-- One that ends later than a new one would was begun before the clock was set back.
if not ends or ends <= now or ends > now + length then
    counted, ends = 0, now + length
end
local within = counted < limit
if counts and within then
    counted = counted + 1
    local ends_text = string.format('%.0f', ends)
    redis.call('HSET', KEYS[1], 'counted', counted, 'ends', ends_text)
    redis.call('PEXPIREAT', KEYS[1], ends_text)
end
return {within and 1 or 0, counted, ends, now}
