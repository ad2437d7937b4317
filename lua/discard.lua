#!lua
-- Discard: gives up a reserved entry, or filters an occupied one, and settles the gap.
--
-- args     worker?, session?, id, reason, note?, requeue?
-- body     discarded   discarded_from (reserved | occupied), promoted: [{ id, from, to }] by buffers
--          unknown_trajectory | trajectory_taken | no_prompt_queue (to requeue in)
-- event    discard, if the entry was in the tables
--
-- Safe to send twice: an entry that is discarded already stays so, whatever the reason was.
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

if args.requeue and not run.config.prompt_queue then
  return sessions.refuse('no_prompt_queue')
end
local id = args.id
local entry = entries.load(id)
if not entry then
  return sessions.refuse('unknown_trajectory')
end
if entry.state == 'discarded' then
  return run.finish({ outcome = 'discarded', discarded_from = entry.discarded_from, promoted = {} })
end
if entries.is_taken(entry) then
  return sessions.refuse('trajectory_taken')
end

local discarded_from = entry.state
entry.note = args.note
prompts.requeue = args.requeue
entries.discard(id, entry, args.reason, sessions.caller_key)
tables.wake()

local promoted = {}
for _, effect in ipairs(tables.effects) do
  if effect.effect == 'promoted' then
    promoted[#promoted + 1] = { id = effect.id, from = effect.from.buffer, to = effect.to.buffer }
  end
end
run.record({
  type = 'discard',
  worker = args.worker or entry.worker,
  session = sessions.caller_key and sessions.caller_token or entry.session,
  reason = args.reason,
  note = args.note,
  requeue = args.requeue or nil,
  ids = { id },
  effects = tables.take_effects(),
})
return run.finish({ outcome = 'discarded', discarded_from = discarded_from, promoted = promoted })
