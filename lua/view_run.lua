#!lua flags=no-writes
-- Shows a run: its configuration, its state, and how many sessions hold a lease.
--
-- args     (none)
-- body     config, state, sessions
--@include run

local stopped = open()
if stopped then
  return stopped
end
advance_clock()
local sessions = redis.call('ZCOUNT', LEASES, string.format('(%d', state.clock), '+inf')
return answer({ config = config, state = state, sessions = sessions })
