#!lua
-- Discard: gives up a reserved entry, or filters an occupied one, and settles the gap.
--
-- args     worker?, session?, id, reason, note?
-- body     discarded   discarded_from (reserved | occupied), promoted: [{ id, from, to }] by buffers
--          unknown_trajectory | trajectory_taken
-- event    discard, if the entry was in the tables
--
-- Safe to send twice: an entry that is discarded already stays so, whatever the reason was.
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
  return finish({ outcome = 'discarded', discarded_from = entry.discarded_from, promoted = {} })
end
if entry.state == 'occupied' and entry.buffer < state.next_buffer then
  return refuse('trajectory_taken')
end

local discarded_from = entry.state
entry.note = args.note
discard_entry(id, entry, args.reason, session_name)
wake_for_tables()

local promoted = {}
for _, effect in ipairs(effects) do
  if effect.effect == 'promoted' then
    promoted[#promoted + 1] = { id = effect.id, from = effect.from.buffer, to = effect.to.buffer }
  end
end
record({
  type = 'discard',
  worker = args.worker or entry.worker,
  session = session_name and string.sub(session_name, #args.worker + 2) or entry.session,
  reason = args.reason,
  note = args.note,
  ids = { id },
  effects = take_effects(),
})
return finish({ outcome = 'discarded', discarded_from = discarded_from, promoted = promoted })
