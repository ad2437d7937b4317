#!lua
-- Sweep: lets the run's clock go on, renews the leases of sessions whose calls wait on a server, and does one bounded step
-- of what is due: a lease that ran out, what is to be forgotten, a batch that is no longer kept. Any number of servers may
-- sweep at once: each step finds and does its work in one.
--
-- args     waiting: [{ worker, session? }], at most 100
-- body     more (call again at once), leases (how many sessions have one)
-- event    expire, if reservations were discarded; prune, if entries of a batch were forgotten
--
-- Safe to send twice: it does what is due, and then nothing is.
--@include run
--@include tables
--@include entries
--@include sessions

local FORGET_STEP = 50
local LOOK_AGAIN_MS = 60000

local stopped = open()
if stopped then
  return stopped
end
advance_clock()
open_tables()

local function renew_waiting()
  for _, waiting in ipairs(args.waiting) do
    local current = current_token(waiting.worker)
    local token = waiting.session or current
    if token and token == current then
      redis.call('ZADD', LEASES, 'GT', state.clock + config.lease_ms, session_key(waiting.worker, token))
    end
  end
end

local function expire_one_session()
  local key = redis.call('ZRANGE', LEASES, '-inf', string.format('%d', state.clock), 'BYSCORE', 'LIMIT', 0, 1)[1]
  if not key then
    return false
  end
  local worker, token = string.match(key, '^(%Z+)%z(%Z*)$')
  local lapsed = load_session(key)
  local reason = lapsed and lapsed.ended and 'worker_restarted' or 'lease_expired'
  local ids = held_by(key, STEP)
  if #ids < STEP then
    redis.call('ZREM', LEASES, key)
  end
  if #ids > 0 then
    local discarded = discard_all(ids, reason)
    record({
      type = 'expire',
      worker = worker,
      session = token,
      reason = reason,
      ids = discarded,
      effects = take_effects(),
    })
  end
  return true
end

-- Each returns when to look again, or nothing to forget it now.
local forget_by_kind = {}

-- A discarded entry is remembered until its deadline has passed, too.
function forget_by_kind.entry(id)
  local entry = load_entry(id)
  if entry.version + ETA >= state.next_buffer then
    return state.clock + LOOK_AGAIN_MS
  end
  redis.call('HDEL', ENTRIES, id)
  redis.call('ZREM', CANCELLED, session_member(holder_of(entry), id))
end

-- A request is remembered while any of its grants is reserved, too. An entry that is not reserved never is again, so the
-- grants are looked through once, FORGET_STEP in a step.
function forget_by_kind.request(key)
  local known = cmsgpack.unpack(redis.call('HGET', REQUESTS, key))
  local index, looked_at = 0, 0
  for step = 0, known.steps - 1 do
    for _, one in ipairs(cmsgpack.unpack(redis.call('HGET', REQUESTS, key .. '\0' .. step)).granted) do
      index = index + 1
      if index > known.checked then
        local entry = load_entry(one.id)
        local is_reserved = entry and entry.state == 'reserved'
        if is_reserved or looked_at == FORGET_STEP then
          redis.call('HSET', REQUESTS, key, cmsgpack.pack(known))
          return is_reserved and state.clock + LOOK_AGAIN_MS or state.clock
        end
        known.checked, looked_at = index, looked_at + 1
      end
    end
  end
  for step = 0, known.steps - 1 do
    redis.call('HDEL', REQUESTS, key .. '\0' .. step)
  end
  redis.call('HDEL', REQUESTS, key)
end

-- A session is forgotten a day after it ended, or after its last call.
function forget_by_kind.session(key)
  local known = load_session(key)
  if not known.ended and (now_ms - known.heartbeat_at_ms < DAY_MS or redis.call('ZSCORE', LEASES, key)) then
    return state.clock + DAY_MS / 24
  end
  if #held_by(key, 1) > 0 then
    return state.clock + LOOK_AGAIN_MS
  end
  redis.call('HDEL', SESSIONS, key)
  redis.call('ZREM', WORKERS, key)
end

local function forget_what_is_due()
  local due = redis.call('ZRANGE', FORGET, '-inf', string.format('%d', state.clock), 'BYSCORE', 'LIMIT', 0, FORGET_STEP)
  for _, member in ipairs(due) do
    local kind, name = string.match(member, '^(%a+):(.*)$')
    local again_at = forget_by_kind[kind](name)
    if again_at then
      redis.call('ZADD', FORGET, again_at, member)
    else
      redis.call('ZREM', FORGET, member)
    end
  end
  return #due > 0
end

-- Forgets the entries of the oldest batch that is no longer kept, in slot order.
local function prune_batch()
  local buffer, slot = state.pruned.buffer, state.pruned.slot
  if buffer >= state.oldest_kept then
    return false
  end
  local last = math.min(slot + FORGET_STEP, B) - 1
  local pruned = {}
  for each = slot, last do
    local field = occupied_field(buffer, each)
    local id = redis.call('HGET', OCCUPIED, field)
    pruned[#pruned + 1] = { effect = 'pruned', id = id, payload = load_entry(id).payload }
    redis.call('HDEL', OCCUPIED, field)
    redis.call('HDEL', ENTRIES, id)
  end
  if last == B - 1 then
    redis.call('HDEL', BATCHES, buffer)
    for version = math.max(buffer - ETA, 0), buffer do
      redis.call('HDEL', BATCHES, string.format('%d/%d', buffer, version))
    end
    redis.call('HDEL', VERSIONS, buffer)
    state.pruned = { buffer = buffer + 1, slot = 0 }
  else
    state.pruned.slot = last + 1
  end
  record({ type = 'prune', version = buffer, ids = {}, effects = pruned })
  return true
end

renew_waiting()
local more = expire_one_session() or prune_batch() or forget_what_is_due()
return finish({ more = more, leases = redis.call('ZCARD', LEASES) })
