-- Requests each target of a file once, or repeatedly, and prints the results as JSON.
--   wrk ... -s wrk.lua URL -- FILE THREADS once|again
local ffi = require("ffi")
ffi.cdef([[
struct peers_time { long seconds; long nanoseconds; };
int clock_gettime(int clock, struct peers_time *time);
]])

local CLOCK_MONOTONIC = 1
local at = ffi.new("struct peers_time")

local function now()
    ffi.C.clock_gettime(CLOCK_MONOTONIC, at)
    return tonumber(at.seconds) + tonumber(at.nanoseconds) / 1e9
end

local threads = {}

function setup(thread)
    table.insert(threads, thread)
    thread:set("number", #threads)
end

function init(arguments)
    local file, of = arguments[1], tonumber(arguments[2])
    again = arguments[3] == "again"
    requests, asked, calls = {}, 0, 0
    local line = 0
    for target in io.lines(file) do
        line = line + 1
        if again or line % of == number % of then
            table.insert(requests, wrk.format("GET", target))
        end
    end
    -- Threads that repeat the same targets start at different ones.
    if again then
        asked = math.floor(#requests * (number - 1) / of)
    end
    first = asked
end

function request()
    calls = calls + 1
    -- The first call only inspects the format of a request.
    if calls <= 2 then
        began = now()
    end
    if asked >= #requests and not again then
        ended = ended or now()
        wrk.thread:stop()
        return requests[#requests]
    end
    asked = asked + 1
    return requests[(asked - 1) % #requests + 1]
end

function done(summary, latency)
    local began, ended, asked = math.huge, 0, 0
    for _, thread in ipairs(threads) do
        began = math.min(began, thread:get("began"))
        ended = math.max(ended, thread:get("ended") or now())
        asked = math.max(asked, thread:get("asked") - thread:get("first"))
    end
    local errors = summary.errors
    io.stdout:write(string.format(
        '\n{"requests":%d,"seconds":%.6f,"median_us":%.1f,"asked":%d,"bytes":%d,"refused":%d,"broken":%d}\n',
        summary.requests, ended - began, latency:percentile(50), asked * #threads, summary.bytes, errors.status,
        errors.connect + errors.read + errors.write + errors.timeout))
end
