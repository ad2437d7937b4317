-- Sessions and their leases (protocol.md, Workers, leases, time).
--
-- The caller's session, its key and its token stand in sessions.caller, .caller_key and .caller_token; nil for a call that
-- names no worker.
sessions.DAY_MS = 86400000

function sessions.key_of(worker, token)
  return worker .. '\0' .. token
end

function sessions.member(key, id)
  return key .. '\0' .. id
end

function sessions.range(key)
  return '[' .. key .. '\0', '(' .. key .. '\1'
end

function sessions.current_token(worker)
  local low, high = sessions.range(worker)
  local member = redis.call('ZRANGE', keys.workers, low, high, 'BYLEX', 'LIMIT', 0, 1)[1]
  return member and string.sub(member, #worker + 2)
end

function sessions.load(key)
  local packed = redis.call('HGET', keys.sessions, key)
  return packed and cmsgpack.unpack(packed)
end

function sessions.save_as(key, session)
  redis.call('HSET', keys.sessions, key, cmsgpack.pack(session))
end

function sessions.save()
  sessions.save_as(sessions.caller_key, sessions.caller)
end

-- How long the session's lease still runs on the run's clock, and when it called last, in the database's time.
function sessions.lease(key, session)
  local last_call = redis.call('ZSCORE', keys.leases, key)
  if not last_call then
    return 0, session.heartbeat_at_ms
  end
  local silent = run.state.clock - last_call
  return math.max(0, run.config.lease_ms - silent), run.now_ms - silent
end

function sessions.renew_lease()
  redis.call('ZADD', keys.leases, run.state.clock, sessions.caller_key)
end

-- Finds the session that makes a call, and renews its lease. Returns the outcome that ends the call, or nil: a session that
-- is new, or whose predecessor still holds something, is opened by a script of its own first.
function sessions.enter(call)
  sessions.caller, sessions.caller_key, sessions.caller_token = nil, nil, nil
  if not call.worker then
    return nil
  end
  sessions.caller_token = call.session or sessions.current_token(call.worker) or ''
  sessions.caller_key = sessions.key_of(call.worker, sessions.caller_token)
  sessions.caller = sessions.load(sessions.caller_key)
  local caller = sessions.caller
  if not caller or caller.predecessor or caller.deleted and not caller.ended then
    return { outcome = 'new_session', worker = call.worker, session = call.session }
  end
  if caller.ended then
    return { outcome = 'fenced' }
  end
  sessions.renew_lease()
end

-- How a script begins that does one call. Returns a reply if the script must end here.
function sessions.begin()
  local stopped = run.open()
  if stopped then
    return stopped
  end
  if run.is_below(args) then
    return run.stop('ledger_behind')
  end
  run.advance_clock()
  tables.open()
  local ended = sessions.enter(args)
  return ended and run.reply({ stop = ended })
end

-- How a script runs that does the calls of many clients, one after another, each as if it were alone: `act` returns the
-- body of the answer to one, or nil and what stopped it. That spares all but the first the way into the script and out of
-- it.
function sessions.run_calls(look, act)
  local stopped = run.open(look)
  if stopped then
    return stopped
  end
  run.advance_clock()
  tables.open()
  local replies = {}
  for index, call in ipairs(args.calls) do
    run.mark = call.mark
    local body
    local ended = run.is_below(call) and { outcome = 'ledger_behind' } or sessions.enter(call)
    if not ended then
      body, ended = act(call)
    end
    replies[index] = { at = run.at(), stop = ended, body = body }
  end
  return run.finish({ replies = replies })
end

-- Ends a script that refused its call: the session was renewed and nothing else changed.
function sessions.refuse(outcome, fields)
  fields = fields or {}
  fields.outcome = outcome
  return run.finish(fields)
end

-- What every answer to a rollout worker carries.
function sessions.with_run(fields)
  local state = run.state
  fields.policy_version, fields.lineage, fields.next_buffer = state.policy_version, state.lineage, state.next_buffer
  fields.lease_expires_in_ms = run.config.lease_ms
  fields.finished = tables.is_finished()
  return fields
end
