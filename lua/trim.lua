#!lua flags=allow-oom
-- Trim: bounds the run's event log by count. The oldest events go, at most 1,000 a step, and only while the log is longer
-- than `keep` by so many, so that it costs little. Once a server archives events before they go, which it notes in the
-- run's hash, the servers that do not archive take nothing away any more.
--
-- args     keep (how many events stay at least), archiving (whether the caller archives events before they go),
--          through? (the seq of the last event that may go: the caller has archived it; without it nothing goes)
-- body     length (of the log, after it), archived (whether some server archives)
-- event    none: what happened in the run is not changed by it
--
-- Safe to send twice: what is gone is gone, and the log is never made shorter than `keep`.
--
-- It may run when the memory is used up, because it makes room.
--@include run

local STEP = 1000

local stopped = run.open()
if stopped then
  return stopped
end

local archived = redis.call('HEXISTS', keys.run, 'archiving') == 1
if args.archiving and not archived then
  redis.call('HSET', keys.run, 'archiving', string.format('%d', run.now_ms))
  archived = true
end

local length = redis.call('XLEN', keys.events)
local may_trim = args.archiving or not archived
if args.through and may_trim and length >= args.keep + STEP then
  local oldest = redis.call('XRANGE', keys.events, '-', '+', 'COUNT', 1)[1][1]
  local first = tonumber(string.match(oldest, '^%d+'))
  local through = math.min(args.through, first + STEP - 1)
  length = length - redis.call('XTRIM', keys.events, 'MINID', string.format('%d-0', through + 1))
end
return run.answer({ length = length, archived = archived })
