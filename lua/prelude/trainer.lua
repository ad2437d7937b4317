-- The trainer's session (protocol.md, The trainer). In state.trainer stand name, session (its token), epoch, and answer, of
-- the session that is open; delivered, the batch that it was last given to its end; wanted, how many entries of buffer H it
-- waits for, if for a piece; and the times of its calls.
trainer.MINUTE_MS = 60000 -- without a call, a trainer waits no more

-- Returns a reply if the call is of an older epoch, or of one that the database lost.
function trainer.refuse()
  local state = run.state
  state.trainer = state.trainer or { last_call = state.clock, last_call_at_ms = run.now_ms }
  if (args.epoch or 0) > state.epoch then
    return run.stop('ledger_behind')
  end
  -- A run that was created again knows an epoch, and has no session.
  if state.epoch > 0 and (not args.epoch or args.epoch ~= state.trainer.epoch) then
    return run.stop('fenced')
  end
end

-- Publishing V + 1 by Publish, or by a trainer that saved its checkpoint and died before it published.
function trainer.advance(version, reference)
  local state = run.state
  state.policy_version, state.trainer_version = version, version
  state.buffers[#state.buffers + 1] = { 0, 0 }
  redis.call('HSET', keys.versions, version, cmsgpack.pack({ weights = reference, published_at_ms = run.now_ms }))
  run.wake('version')
  run.wake('admission')
  tables.wake()
end
