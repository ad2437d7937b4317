#!lua
-- Feed: adds prompts to the queue of a run.
--
-- args     seen?, offset?, prompts: [{ id, data?, expected_tokens? }], at most 50
-- body     fed         fed (how many were fed in all)
--          feed_gap    fed
--          draining    if it would add something to a run that is being finished
--          no_prompt_queue
-- event    feed, if it added any
--
-- Safe to send twice: what lies below `fed` is not added again. A page without an offset is known by its mark until the next
-- one comes.
--@include run
--@include prompts

local stopped = run.open()
if stopped then
  return stopped
end
if run.is_below(args) then
  return run.stop('ledger_behind')
end
run.advance_clock()

local known = run.state.prompts
if not known then
  return run.finish({ outcome = 'no_prompt_queue' })
end
local offset = args.offset
if not offset then
  offset = known.appended == run.mark and known.fed - #args.prompts or known.fed
end
if offset > known.fed then
  return run.finish({ outcome = 'feed_gap', fed = known.fed })
end
local first = known.fed - offset + 1
if first > #args.prompts then
  return run.finish({ outcome = 'fed', fed = known.fed })
end
if run.state.draining then
  return run.finish({ outcome = 'draining' })
end

local added = {}
for index = first, #args.prompts do
  local prompt, position = args.prompts[index], known.fed
  prompt.attempt, prompt.state = 1, 'queued'
  prompts.save(position, prompt)
  prompts.put_in_front(position, prompt)
  known.fed = position + 1
  added[#added + 1] = { id = prompt.id, expected_tokens = prompt.expected_tokens }
end
known.appended = not args.offset and run.mark or nil
run.record({ type = 'feed', fed = known.fed, prompts = added, ids = {}, effects = {} })
run.wake('admission')
return run.finish({ outcome = 'fed', fed = known.fed })
