#!lua flags=allow-oom
-- Sweep: lets the run's clock go on, renews the leases of sessions whose calls wait on a server, and does one bounded step
-- of what is due: a lease that ran out, what has been reserved or awaited for too long, what is to be forgotten, a batch that is no longer kept. Any number of servers may
-- sweep at once: each step finds and does its work in one.
--
-- args     waiting: [{ worker, session? }], at most 100
-- body     more (call again at once), leases (how many sessions have one), reserved (how many entries are), events (how long
--          the event log is)
-- event    expire, if reservations were discarded or left without an owner; prune, if entries of a batch were forgotten
--
-- Safe to send twice: it does what is due, and then nothing is.
--@include run
--@include sessions
--@include tables
--@include entries
--@include moves
--@include figures
--@include prompts
--@include discarding
--@include groups
--@include batches
--@include trainer
--@include stragglers

local FORGET_STEP = 50
local LOOK_AGAIN_MS = 60000

local stopped = run.open()
if stopped then
  return stopped
end
run.advance_clock()
tables.open()

local function renew_waiting()
  for _, waiting in ipairs(args.waiting) do
    local current = sessions.current_token(waiting.worker)
    local token = waiting.session or current
    if token and token == current then
      redis.call('ZADD', keys.leases, run.state.clock, sessions.key_of(waiting.worker, token))
    end
  end
end

local function expire_one_session()
  local last_call = string.format('%d', run.state.clock - run.config.lease_ms)
  local key = redis.call('ZRANGE', keys.leases, '-inf', last_call, 'BYSCORE', 'LIMIT', 0, 1)[1]
  if not key then
    return false
  end
  local worker, token = string.match(key, '^(%Z+)%z(%Z*)$')
  local lapsed = sessions.load(key)
  local reason = lapsed.ended and 'worker_restarted' or 'lease_expired'
  local ids = sessions.held_by(key, sessions.STEP)
  if #ids < sessions.STEP then
    if not lapsed.ended then
      local _, heartbeat_at_ms = sessions.lease(key, lapsed)
      lapsed.heartbeat_at_ms = heartbeat_at_ms
      sessions.save_as(key, lapsed)
    end
    redis.call('ZREM', keys.leases, key)
  end
  if #ids > 0 then
    local discarded = sessions.discard_all(ids, reason)
    run.record({
      type = 'expire',
      worker = worker,
      session = token,
      reason = reason,
      ids = discarded,
      effects = tables.take_effects(),
    })
  end
  return true
end

-- Each returns when to look again, or nothing to forget it now.
local forget_by_kind = {}

-- A discarded entry is remembered until its deadline has passed, too.
function forget_by_kind.entry(id)
  local entry = entries.load(id)
  if entry.version + tables.ETA >= run.state.next_buffer then
    return run.state.clock + LOOK_AGAIN_MS
  end
  prompts.forget(id, entry)
  redis.call('HDEL', keys.entries, id)
  redis.call('ZREM', keys.cancelled, sessions.member(entries.holder_of(entry), id))
  groups.forget(id, entry)
end

-- A request is remembered while any of its grants is reserved, too. An entry that is not reserved never is again, so the
-- grants are looked through once, FORGET_STEP in a step.
function forget_by_kind.request(key)
  local known = cmsgpack.unpack(redis.call('HGET', keys.requests, key))
  local index, looked_at = 0, 0
  for step = 0, known.steps - 1 do
    for _, one in ipairs(cmsgpack.unpack(redis.call('HGET', keys.requests, key .. '\0' .. step)).granted) do
      index = index + 1
      if index > known.checked then
        local entry = entries.load(one.id)
        local is_reserved = entry and entry.state == 'reserved'
        if is_reserved or looked_at == FORGET_STEP then
          redis.call('HSET', keys.requests, key, cmsgpack.pack(known))
          return is_reserved and run.state.clock + LOOK_AGAIN_MS or run.state.clock
        end
        known.checked, looked_at = index, looked_at + 1
      end
    end
  end
  for step = 0, known.steps - 1 do
    redis.call('HDEL', keys.requests, key .. '\0' .. step)
  end
  redis.call('HDEL', keys.requests, key)
end

-- The token of a trainer session that is over.
function forget_by_kind.trainer(field)
  redis.call('HDEL', keys.requests, field)
end

-- A session is forgotten a day after it ended, or after its last call.
function forget_by_kind.session(key)
  local known = sessions.load(key)
  local _, heartbeat_at_ms = sessions.lease(key, known)
  if not known.ended and run.now_ms - heartbeat_at_ms < sessions.DAY_MS then
    return run.state.clock + sessions.DAY_MS / 24
  end
  if #sessions.held_by(key, 1) > 0 then
    return run.state.clock + LOOK_AGAIN_MS
  end
  redis.call('HDEL', keys.sessions, key)
  redis.call('ZREM', keys.workers, key)
end

local function forget_what_is_due()
  local clock = string.format('%d', run.state.clock)
  local due = redis.call('ZRANGE', keys.forget, '-inf', clock, 'BYSCORE', 'LIMIT', 0, groups.step(FORGET_STEP))
  for _, member in ipairs(due) do
    local kind, name = string.match(member, '^(%a+):(.*)$')
    local again_at = forget_by_kind[kind](name)
    if again_at then
      redis.call('ZADD', keys.forget, again_at, member)
    else
      redis.call('ZREM', keys.forget, member)
    end
  end
  return #due > 0
end

-- Forgets the entries of the oldest batch that is let go of, in slot order.
local function prune_batch()
  local pruned, gaps = run.state.pruned, run.state.gaps or {}
  while gaps[1] and pruned.buffer == gaps[1][1] and run.state.oldest_kept >= gaps[1][2] do
    -- No batch has these numbers; only the version that was the latest before the jump.
    redis.call('HDEL', keys.versions, gaps[1][1])
    pruned.buffer = gaps[1][2]
    table.remove(gaps, 1)
  end
  if gaps[1] and pruned.buffer == gaps[1][1] then
    return false
  end
  if pruned.buffer >= run.state.oldest_kept then
    return false
  end
  local buffer = pruned.buffer
  local count = batches.load(buffer).entries
  local past = math.min(pruned.slot + groups.step(FORGET_STEP), count)
  batches.forget(buffer, pruned.slot, past)
  if past == count then
    batches.strike(buffer)
    redis.call('HDEL', keys.versions, buffer)
    run.state.pruned = { buffer = buffer + 1, slot = 0 }
  else
    pruned.slot = past
  end
  run.record({ type = 'prune', version = buffer, ids = {}, effects = tables.take_effects() })
  return true
end

renew_waiting()
local more = expire_one_session()
  or entries.give_up_timed_out()
  or entries.give_up_stuck()
  or prune_batch()
  or forget_what_is_due()
return run.finish({
  more = more,
  leases = redis.call('ZCARD', keys.leases),
  reserved = redis.call('ZCARD', keys.reserved),
  events = redis.call('XLEN', keys.events),
})
