#!lua flags=no-writes
-- Shows the workers and their current sessions, in the order of their names, a page at a time.
--
-- args     after? (a worker's name), limit
-- body     workers: [{ worker, session, version?, heartbeat_at_ms, lease_expires_in_ms, reserved, finished,
--          cancelled_pending, last_refusal? }], next?
--@include run
--@include sessions
--@include weights

local stopped = run.load()
if stopped then
  return stopped
end
run.advance_clock()

local function count_members(index, key)
  local low, high = sessions.range(key)
  return redis.call('ZLEXCOUNT', index, low, high)
end

local low = args.after and '(' .. args.after .. '\1' or '-'
local members = redis.call('ZRANGE', keys.workers, low, '+', 'BYLEX', 'LIMIT', 0, args.limit + 1)
local workers, next_worker = {}, nil
for index, key in ipairs(members) do
  if index > args.limit then
    next_worker = workers[index - 1].worker
    break
  end
  local worker, token = string.match(key, '^(%Z+)%z(%Z*)$')
  local known = sessions.load(key)
  local lease_expires_in_ms, heartbeat_at_ms = sessions.lease(key, known)
  workers[index] = {
    worker = worker,
    session = token,
    version = weights.said_version(known),
    heartbeat_at_ms = heartbeat_at_ms,
    lease_expires_in_ms = lease_expires_in_ms,
    reserved = count_members(keys.held, key),
    finished = known.finished,
    cancelled_pending = count_members(keys.cancelled, key),
    last_refusal = known.last_refusal,
  }
end
return run.answer({ workers = workers, next = next_worker })
