-- Takes a part from what is free of a download: see begin_download.lua. KEYS: the client's downloads. ARGV: which one;
-- bytes of the part; bytes of the whole; bytes and parts that a download may have. Returns whether the part is free.
local record = redis.call('HGET', KEYS[1], ARGV[1])
if not record then
    return 0
end
local ends, _, sent, whole, parts = string.match(record, '^(%d+) (%d+) (%d+) (%d) (%d+)$')
if tonumber(ends) <= now then
    return 0
end
local sent_now = tonumber(sent) + tonumber(ARGV[2])
local counted = whole == '1' and tonumber(ARGV[3]) or 0
local free = tonumber(parts) < tonumber(ARGV[5]) and sent_now + counted <= tonumber(ARGV[4])
if free then
    sent, parts = string.format('%.0f', sent_now), tonumber(parts) + 1
end
local use = redis.call('HINCRBY', KEYS[1], 'uses', 1)
redis.call('HSET', KEYS[1], ARGV[1], string.format('%s %.0f %s %s %.0f', ends, use, sent, whole, parts))
return free and 1 or 0
