#!lua
-- Claim: makes the caller's session the holder of a reservation.
--
-- args     worker, session?, id
-- body     claimed | unknown_trajectory | trajectory_discarded (reason) | version_too_stale
-- event    claim, if the holder changed
--
-- Safe to send twice: the holder is the same afterwards.
--@include run
--@include tables
--@include entries
--@include sessions

local stopped = open() or enter()
if stopped then
  return stopped
end

local id = args.id
local entry = load_entry(id)
if not entry then
  return refuse('unknown_trajectory')
end
if entry.state == 'discarded' then
  return refuse('trajectory_discarded', { reason = entry.reason })
end
if entry.state == 'occupied' or holder_of(entry) == session_name then
  return finish({ outcome = 'claimed' })
end
if session.version and session.version < entry.version then
  return refuse('version_too_stale', { policy_version = state.policy_version })
end

redis.call('ZREM', HELD, session_member(holder_of(entry), id))
redis.call('ZADD', HELD, 0, session_member(session_name, id))
entry.worker, entry.session = args.worker, string.sub(session_name, #args.worker + 2)
entry.granted_at = state.clock -- a claim is a grant: `holding` may lack it for one lease
save_entry(id, entry)
record({ type = 'claim', worker = entry.worker, session = entry.session, ids = { id }, effects = {} })
return finish({ outcome = 'claimed' })
