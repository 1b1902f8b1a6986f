-- Script of wrk: posts the bodies in the file BODIES, one a line, in turn from line FIRST on; prints a line of JSON.

local requests, current = {}, 0

function init(arguments)
  for body in io.lines(os.getenv("BODIES")) do
    requests[#requests + 1] = wrk.format("POST", nil, {["Content-Type"] = "application/json"}, body)
  end
  current = tonumber(os.getenv("FIRST"))
end

function request()
  current = current % #requests + 1
  return requests[current]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\nresult {"answers": %d, "microseconds": %d, "p50": %.1f, "p99": %.1f, "refused": %d, "broken": %d, "late": %d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write, errors.timeout))
end
