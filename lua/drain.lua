#!lua
-- Drain: from now on nothing is admitted, and the run ends with what is in flight; or, called off, things are admitted again.
--
-- args     seen?, drain (whether it is to be), queue ("finish" or "keep": what becomes of queued prompts)
-- body     draining, finished, reserved
-- event    drain, if that is news
--
-- Safe to send twice: the second finds the run as it is to be.
--@include run
--@include sessions
--@include tables

local stopped = sessions.begin()
if stopped then
  return stopped
end

local state = run.state
local before = state.draining and state.draining.queue
local queue = args.drain and args.queue or nil
if queue ~= before then
  state.draining = queue and { queue = queue } or nil
  run.record({ type = 'drain', drain = args.drain, queue = queue, ids = {}, effects = {} })
  run.wake('admission')
  tables.wake()
end
return run.finish({
  draining = state.draining ~= nil,
  finished = tables.is_finished(),
  reserved = tables.reserved_in_all(),
})
