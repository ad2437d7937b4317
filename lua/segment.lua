#!lua
-- Segment: the generation of a trajectory, or of a member of a group, goes on under a newer version from a token on.
--
-- args     worker?, session?, lineage?, id, member?, segment { version, from_token }
-- body     recorded    segments: [{ version, from_token }], all of them
--          unknown_trajectory | no_groups | member_missing | no_such_member (candidates) | trajectory_discarded (reason)
--          version_not_published | version_too_stale (policy_version) | segment_out_of_order
-- event    segment, if it was not known; what is finished, or reported, or was filled, is not changed any more
--
-- Safe to send twice: a segment that is known changes nothing.
--@include run
--@include sessions
--@include tables
--@include entries
--@include moves
--@include figures
--@include prompts
--@include discarding
--@include finishing
--@include weights
--@include segments
--@include groups

local stopped = sessions.begin()
if stopped then
  return stopped
end
if weights.is_above(args) then
  return run.stop('ledger_behind')
end

local id, index, segment = args.id, args.member, args.segment
local entry = entries.load(id)
if not entry then
  return sessions.refuse('unknown_trajectory')
end
local unfit = groups.unfit(index)
if unfit then
  return sessions.refuse(unfit, { candidates = run.config.group_candidates })
end

-- What is generated: the trajectory itself, or the member.
local generated = entry
if index then
  generated = groups.load(id, index) or { index = index, state = 'generating' }
end
local first = generated.version or entry.version

local is_discarded = entry.state == 'discarded'
local is_gone = is_discarded and groups.GONE[entry.reason]
local barred = is_discarded and not is_gone and entries.late_refusal(id, entry)
if barred then
  return sessions.refuse(barred, { reason = entry.reason })
end
local is_over = index and (groups.is_filled(entry) or groups.is_reported(entry, index))
if entry.state == 'occupied' or is_gone or is_over then
  return run.finish({ outcome = 'recorded', segments = segments.shown(first, generated.segments) })
end

local lineage = segments.lineage_of(args)
if segments.refusal(segment.version, lineage) then
  return sessions.refuse('version_not_published', { policy_version = run.state.policy_version })
end
if segment.version < entry.version then
  return sessions.refuse('version_too_stale', { policy_version = run.state.policy_version })
end
local begins = index and segment.from_token == 0 and not generated.version and not generated.segments
if begins then
  first = segment.version
end
local following = segments.join(first, generated.segments, { segment })
if not following then
  return sessions.refuse('segment_out_of_order')
end

if begins or #following > #(generated.segments or {}) then
  if #following > 0 then
    generated.segments = following
  end
  if index then
    generated.version = begins and first or generated.version
    generated.newest = segments.newest(first, following)
    groups.save(id, index, generated)
  end
  if segments.raise(entry, segment.version) then
    tables.effect({ effect = 'continued', id = id, version = segment.version })
  end
  entries.save(id, entry)
  run.record({
    type = 'segment',
    worker = args.worker or entry.worker,
    session = sessions.caller and sessions.caller_token or entry.session,
    version = segment.version,
    lineage = segments.logged(args, lineage),
    ids = { id },
    effects = tables.take_effects(),
  })
end
return run.finish({ outcome = 'recorded', segments = segments.shown(first, following) })
