-- Begins a download of an export. KEYS: the client's downloads. ARGV: which one; bytes sent of it; 1 if all of it was
-- sent; how long it lasts in ms; how many a client may have. What a field holds: its end, its last use, bytes sent,
-- whether all of it was sent, free parts.
local field, length, most = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5])
local all = redis.call('HGETALL', KEYS[1])
local live, oldest, oldest_use = 0, nil, nil
for at = 1, #all, 2 do
    local name = all[at]
    if name ~= 'uses' then
        local ends, use = string.match(all[at + 1], '^(%d+) (%d+) ')
        if name == field or tonumber(ends) <= now then
            redis.call('HDEL', KEYS[1], name)
        else
            live = live + 1
            if not oldest_use or tonumber(use) < oldest_use then
                oldest, oldest_use = name, tonumber(use)
            end
        end
    end
end
if live >= most then
    redis.call('HDEL', KEYS[1], oldest)
end
local use = redis.call('HINCRBY', KEYS[1], 'uses', 1)
local ends = string.format('%.0f', now + length)
redis.call('HSET', KEYS[1], field, string.format('%s %.0f %s %s 0', ends, use, ARGV[2], ARGV[3]))
redis.call('PEXPIREAT', KEYS[1], ends)
return 1
