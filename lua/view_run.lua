#!lua flags=no-writes
-- Shows a run: its configuration, its state, and how many sessions hold a lease.
--
-- args     (none)
-- body     config, state, sessions
--@include run

local stopped = run.load()
if stopped then
  return stopped
end
run.advance_clock()
local last_call = string.format('(%d', run.state.clock - run.config.lease_ms)
local alive = redis.call('ZCOUNT', keys.leases, last_call, '+inf')
return run.answer({ config = run.config, state = run.state, sessions = alive })
