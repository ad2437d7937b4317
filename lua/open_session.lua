#!lua
-- Opens the session of a worker that is new, and does one step of discarding what its predecessor still holds.
--
-- args     worker, session?
-- body     more (call again: the predecessor may hold more)
-- event    session_opened, with what was discarded; expire, for each further step
--
-- Safe to send twice: the second finds the session open.
--@include run
--@include sessions
--@include tables
--@include entries
--@include moves
--@include figures
--@include prompts
--@include discarding
--@include groups

local stopped = run.open()
if stopped then
  return stopped
end
run.advance_clock()
tables.open()

local token = args.session or sessions.current_token(args.worker) or ''
sessions.caller_key = sessions.key_of(args.worker, token)
sessions.caller = sessions.load(sessions.caller_key)
if sessions.caller and sessions.caller.ended then
  return run.stop('fenced')
end

-- The lineage that the process knows: one of the deleted run, if it called that under its token.
local is_of_deleted_run = sessions.caller and sessions.caller.deleted
local known_lineage
if is_of_deleted_run then
  known_lineage = sessions.caller.lineage
elseif run.state.lineage > 0 then
  known_lineage = run.state.lineage
end

-- A token that was not seen before: a new session of the worker. Its predecessor ends here and is fenced from now on; what
-- it held is discarded in steps, by the caller or by any sweeper (a last call long before the clock began is long over).
local function open_session()
  sessions.caller = {
    opened_at_ms = run.now_ms,
    heartbeat_at_ms = run.now_ms,
    finished = 0,
    lineage = known_lineage,
  }
  local predecessor_token = sessions.current_token(args.worker)
  if predecessor_token then
    local predecessor = sessions.key_of(args.worker, predecessor_token)
    local ended = sessions.load(predecessor)
    local _, heartbeat_at_ms = sessions.lease(predecessor, ended)
    ended.ended, ended.heartbeat_at_ms = true, heartbeat_at_ms
    sessions.save_as(predecessor, ended)
    redis.call('ZREM', keys.workers, predecessor)
    redis.call('ZADD', keys.leases, '-inf', predecessor)
    redis.call('ZADD', keys.forget, run.state.clock + sessions.DAY_MS, 'session:' .. predecessor)
    sessions.caller.predecessor = predecessor
    -- Calls of the old session that wait are refused now.
    run.wake('admission')
    run.wake_worker(args.worker)
  end
  redis.call('ZADD', keys.workers, 0, sessions.caller_key)
  redis.call('ZADD', keys.forget, run.state.clock + sessions.DAY_MS, 'session:' .. sessions.caller_key)
end

local is_new = not sessions.caller or is_of_deleted_run
if is_new then
  open_session()
end
sessions.renew_lease()
local predecessor = sessions.caller.predecessor
local left = predecessor and sessions.held_by(predecessor, sessions.STEP) or {}
local more = #left == sessions.STEP
if predecessor and not more then
  redis.call('ZREM', keys.leases, predecessor)
  sessions.caller.predecessor = nil
end
sessions.save()
local discarded = sessions.discard_all(left, 'worker_restarted')
if is_new or #discarded > 0 then
  run.record({
    type = is_new and 'session_opened' or 'expire',
    worker = args.worker,
    session = token,
    reason = #discarded > 0 and 'worker_restarted' or nil,
    ids = discarded,
    effects = tables.take_effects(),
  })
end
return run.finish({ more = more })
