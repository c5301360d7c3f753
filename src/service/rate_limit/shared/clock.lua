-- Begins every script. Milliseconds since 1970 by the server's clock, which is the same for all processes. Tests give
-- another one as the last argument.
local now = tonumber(ARGV[#ARGV])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end
