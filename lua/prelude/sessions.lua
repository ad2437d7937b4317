-- Sessions and their leases (protocol.md, Workers, leases, time).
local DAY_MS = 86400000
local STEP = 50 -- the most reservations that one step discards

local session, session_name -- the caller's session and its key; nil for a call that names no worker

local function session_range(key)
  return '[' .. key .. '\0', '(' .. key .. '\1'
end

local function held_by(key, most)
  local low, high = session_range(key)
  local ids = {}
  for index, member in ipairs(redis.call('ZRANGE', HELD, low, high, 'BYLEX', 'LIMIT', 0, most)) do
    ids[index] = string.sub(member, #key + 2)
  end
  return ids
end

local function count_members(index, key)
  local low, high = session_range(key)
  return redis.call('ZLEXCOUNT', index, low, high)
end

local function current_token(worker)
  local low, high = session_range(worker)
  local member = redis.call('ZRANGE', WORKERS, low, high, 'BYLEX', 'LIMIT', 0, 1)[1]
  return member and string.sub(member, #worker + 2)
end

local function load_session(key)
  local packed = redis.call('HGET', SESSIONS, key)
  return packed and cmsgpack.unpack(packed)
end

local function save_session()
  redis.call('HSET', SESSIONS, session_name, cmsgpack.pack(session))
end

-- Discards the reservations one at a time, the one that is front-most then, each settled before the next. Returns those that
-- were discarded for this reason: one may become surplus before its turn.
local function discard_all(ids, reason)
  local positions = {}
  for _, id in ipairs(ids) do
    positions[id] = reserved_position(id, load_entry(id).version)
  end
  local discarded, seen = {}, #effects
  while true do
    local first
    for id, position in pairs(positions) do
      if not first or position < positions[first] then
        first = id
      end
    end
    if not first then
      break
    end
    positions[first] = nil
    discard_entry(first, load_entry(first), reason)
    discarded[#discarded + 1] = first
    for index = seen + 1, #effects do
      local effect = effects[index]
      if positions[effect.id] then
        positions[effect.id] = effect.to and effect.to.buffer * S + effect.to.slot
      end
    end
    seen = #effects
  end
  wake_for_tables()
  return discarded
end

-- A token that was not seen before: a new session of the worker. Its predecessor ends here and is fenced from now on; what
-- it held is discarded in steps, by the caller or by any sweeper (a lease that ended at 0 is long over).
local function open_session(worker, token, predecessor_token)
  session_name = session_key(worker, token)
  session = { opened_at_ms = now_ms, heartbeat_at_ms = now_ms, finished = 0 }
  if predecessor_token then
    local predecessor = session_key(worker, predecessor_token)
    local ended = load_session(predecessor)
    ended.ended = true
    redis.call('HSET', SESSIONS, predecessor, cmsgpack.pack(ended))
    redis.call('ZREM', WORKERS, predecessor)
    redis.call('ZADD', LEASES, 0, predecessor)
    redis.call('ZADD', FORGET, state.clock + DAY_MS, 'session:' .. predecessor)
    session.predecessor = predecessor
    -- Calls of the old session that wait are refused now.
    wake('admission')
    wake_worker(worker)
  end
  redis.call('ZADD', WORKERS, 0, session_name)
  redis.call('ZADD', FORGET, state.clock + DAY_MS, 'session:' .. session_name)
end

local function renew_lease()
  session.heartbeat_at_ms = now_ms
  redis.call('ZADD', LEASES, state.clock + config.lease_ms, session_name)
end

-- Finds the caller's session, opens it or refuses it, and renews its lease. Returns a reply if the script must end here;
-- `again` means that a step was done and the call is to be sent once more.
local function enter()
  advance_clock()
  open_tables()
  if not args.worker then
    return nil
  end
  local current = current_token(args.worker)
  local token = args.session or current or ''
  session_name = session_key(args.worker, token)
  session = load_session(session_name)
  local opened = not session
  if session and session.ended then
    return stop('fenced')
  end
  if opened then
    open_session(args.worker, token, current)
  end
  renew_lease()
  local left = session.predecessor and held_by(session.predecessor, STEP) or {}
  if #left < STEP and session.predecessor then
    redis.call('ZREM', LEASES, session.predecessor)
    session.predecessor = nil
  end
  save_session()
  if not opened and #left == 0 then
    return nil
  end
  local discarded = discard_all(left, 'worker_restarted')
  record({
    type = opened and 'session_opened' or 'expire',
    worker = args.worker,
    session = token,
    reason = #discarded > 0 and 'worker_restarted' or nil,
    ids = discarded,
    effects = take_effects(),
  })
  save()
  return stop('again')
end

-- Ends a script that refused its call: the session was renewed and nothing else changed.
local function refuse(outcome, fields)
  fields = fields or {}
  fields.outcome = outcome
  return finish(fields)
end

-- What every answer to a rollout worker carries.
local function with_run(fields)
  fields.policy_version, fields.lineage, fields.next_buffer = state.policy_version, state.lineage, state.next_buffer
  fields.lease_expires_in_ms = config.lease_ms
  return fields
end
