#!lua flags=no-writes
-- Shows a run: its configuration, its state, how many sessions hold a lease, how many prompts are in each state, and the
-- latest version's record. That is read here, because a version that was the latest may be forgotten, or be another one after
-- a rewind, when somebody asks later.
--
-- args     (none)
-- body     config, state, finished, sessions, latest? { weights?, published_at_ms }, prompts?
--@include run
--@include tables
--@include prompts

local stopped = run.load()
if stopped then
  return stopped
end
run.advance_clock()
tables.open()
local last_call = string.format('(%d', run.state.clock - run.config.lease_ms)
local alive = redis.call('ZCOUNT', keys.leases, last_call, '+inf')
local latest = redis.call('HGET', keys.versions, run.state.policy_version)
return run.answer({
  config = run.config,
  state = run.state,
  finished = tables.is_finished(),
  sessions = alive,
  latest = latest and cmsgpack.unpack(latest) or nil,
  prompts = prompts.counts(),
})
