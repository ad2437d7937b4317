#!lua
-- Member: a member of a group finished or failed. The last one that was needed occupies the group, unless its client does
-- that; one too many that failed, or equal rewards, discard it.
--
-- args     worker?, session?, lineage?, id,
--          report { index, failed?, version?, reward?, tokens?, payload?, meta?, note?, segments?: [{ version, from_token }] }
-- body     recorded    state, counted, complete, failed, needed; of a discarded group reason; of an occupied one buffer, slot,
--                      buffer_state and late
--          unknown_trajectory | no_groups | no_such_member (candidates) | trajectory_discarded (reason) | superseded
--          version_unknown | version_not_published | version_too_stale (policy_version) | segment_out_of_order
-- event    member, if it counts
--
-- Safe to send twice: a member that is reported already does not count.
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

local id, report = args.id, args.report
local entry = entries.load(id)
if not entry then
  return sessions.refuse('unknown_trajectory')
end
local unfit = groups.unfit(report.index)
if unfit then
  return sessions.refuse(unfit, { candidates = run.config.group_candidates })
end

local function answer(counted)
  local fields = { state = entry.state, reason = entry.reason }
  if entry.state == 'occupied' then
    fields = entries.outcome(id, entry)
  end
  fields.outcome, fields.counted = 'recorded', counted
  fields.complete, fields.failed, fields.needed = entry.complete, entry.failed, run.config.group_size
  return run.finish(fields)
end

local is_late = entry.state == 'discarded'
if entry.state == 'occupied' or is_late and groups.GONE[entry.reason] then
  return answer(false)
end
local barred = is_late and entries.late_refusal(id, entry)
if barred then
  return sessions.refuse(barred, { reason = entry.reason })
end

local lineage = segments.lineage_of(args)
local member, refused = groups.count(args, lineage, id, entry, report)
if refused then
  local word = refused == 'abandoned' and 'version_not_published' or refused
  return sessions.refuse(word, { policy_version = run.state.policy_version })
end
if not member then
  return answer(false)
end
local is_occupied_now = groups.is_filled(entry) and run.config.auto_occupy
local late_position = is_late and is_occupied_now and tables.admission_position(entry.version) or nil
if is_late and is_occupied_now and not late_position then
  return sessions.refuse('trajectory_discarded', { reason = entry.reason })
end

groups.keep(id, entry, { member })
local is_concluded = is_occupied_now or not is_late and groups.cannot_be_filled(entry)
if is_concluded then
  entries.conclude(id, entry, late_position)
  if sessions.caller then
    sessions.save()
  end
else
  if not is_late and groups.is_filled(entry) then
    groups.cancel_rest(id, entry)
  end
  entries.save(id, entry)
end
tables.wake()
run.record({
  type = 'member',
  worker = args.worker or entry.worker,
  session = sessions.caller and sessions.caller_token or entry.session,
  lineage = segments.logged(args, lineage),
  late = late_position and true or nil,
  ids = { id },
  effects = tables.take_effects(),
})
return answer(true)
