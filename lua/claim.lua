#!lua
-- Claim: makes the caller's session the holder of a reservation.
--
-- args     worker, session?, id
-- body     claimed | unknown_trajectory | trajectory_discarded (reason) | version_too_stale
-- event    claim, if the holder changed, or there was none any more (Adoption)
--
-- Safe to send twice: the holder is the same afterwards.
--@include run
--@include sessions
--@include tables
--@include entries
--@include weights
--@include groups

local stopped = sessions.begin()
if stopped then
  return stopped
end

local id = args.id
local entry = entries.load(id)
if not entry then
  return sessions.refuse('unknown_trajectory')
end
if entry.state == 'discarded' then
  return sessions.refuse('trajectory_discarded', { reason = entry.reason })
end
local is_holder = entries.holder_of(entry) == sessions.caller_key and not entry.orphan
if entry.state == 'occupied' or is_holder then
  return run.finish({ outcome = 'claimed' })
end
local said = weights.said_version(sessions.caller)
if said and said < entry.version then
  return sessions.refuse('version_too_stale', { policy_version = run.state.policy_version })
end

if entry.orphan then
  groups.adopt(id, entry)
else
  local former = sessions.member(entries.holder_of(entry), id)
  redis.call('ZREM', keys.held, former)
  redis.call('ZREM', keys.cancelled, former)
end
redis.call('ZADD', keys.held, 0, sessions.member(sessions.caller_key, id))
entry.worker, entry.session = args.worker, sessions.caller_token
entry.granted_at = run.state.clock -- a claim is a grant: `holding` may lack it for one lease
entries.save(id, entry)
run.record({ type = 'claim', worker = entry.worker, session = entry.session, ids = { id }, effects = tables.take_effects() })
return run.finish({ outcome = 'claimed' })
