#!lua
-- Abandon: takes back a grant that reached nobody. A group with complete members waits for another owner, everything else is
-- discarded as `abandoned`. What was finished meanwhile stays as it is, and so does what another session holds by now.
--
-- args     id, holder: { worker, session? }, to whom it was granted
-- body     abandoned | kept (it is not reserved, or not held by `holder`)
-- event    discard, if it was taken back
--
-- Safe to send twice: what is taken back has no holder any more.
--@include run
--@include sessions
--@include tables
--@include entries
--@include moves
--@include figures
--@include prompts
--@include discarding
--@include groups

local stopped = sessions.begin()
if stopped then
  return stopped
end

local id, holder = args.id, args.holder
local entry = entries.load(id)
local is_held = entry and entry.state == 'reserved' and not entry.orphan
if not is_held or entry.worker ~= holder.worker or holder.session and entry.session ~= holder.session then
  return run.finish({ outcome = 'kept' })
end

local worker, session = entry.worker, entry.session
entries.lose(id, entry, 'abandoned')
tables.wake()
run.record({
  type = 'discard',
  worker = worker,
  session = session,
  reason = 'abandoned',
  ids = { id },
  effects = tables.take_effects(),
})
return run.finish({ outcome = 'abandoned' })
