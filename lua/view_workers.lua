#!lua flags=no-writes
-- Shows the workers and their current sessions, in the order of their names, a page at a time.
--
-- args     after? (a worker's name), limit
-- body     workers: [{ worker, session, version?, heartbeat_at_ms, lease_expires_in_ms, reserved, finished,
--          cancelled_pending }], next?
--@include run
--@include tables
--@include entries
--@include sessions

local stopped = open()
if stopped then
  return stopped
end
advance_clock()

local low = args.after and '(' .. args.after .. '\1' or '-'
local members = redis.call('ZRANGE', WORKERS, low, '+', 'BYLEX', 'LIMIT', 0, args.limit + 1)
local workers, next_worker = {}, nil
for index, key in ipairs(members) do
  if index > args.limit then
    next_worker = workers[index - 1].worker
    break
  end
  local worker, token = string.match(key, '^(%Z+)%z(%Z*)$')
  local known = load_session(key)
  local lease = redis.call('ZSCORE', LEASES, key)
  workers[index] = {
    worker = worker,
    session = token,
    version = known.version,
    heartbeat_at_ms = known.heartbeat_at_ms,
    lease_expires_in_ms = lease and math.max(0, lease - state.clock) or 0,
    reserved = count_members(HELD, key),
    finished = known.finished,
    cancelled_pending = count_members(CANCELLED, key),
  }
end
return answer({ workers = workers, next = next_worker })
