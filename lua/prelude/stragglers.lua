-- What is discarded because somebody waits for it for too long (protocol.md, Reservation timeout and Stuck timeout).

-- From when on the clock of the stuck timeout runs, or nil while it does not. While buffer H is pending, somebody may be
-- admitted to it, unless nobody can be.
function trainer.is_held_up_since()
  local state, times = run.state, run.state.trainer
  local waits = times and times.waiting_since and state.clock - times.last_call <= trainer.MINUTE_MS
  if not waits or not tables.is_idle() then
    return nil
  end
  local since
  local buffer_state = tables.buffer_state(state.next_buffer)
  if buffer_state == 'stuck' then
    since = state.stuck_since or state.clock
  elseif buffer_state == 'pending' and tables.admission_is_blocked() then
    since = state.last_admission or 0
  else
    return nil
  end
  return math.max(since, times.waiting_since, state.stuck_fired or 0)
end

-- Whether the stuck timeout fires, or has begun to and is not through: it discards in steps, and a place that the first of
-- them frees does not end it. Notes what it is about.
local function fires()
  local state, timeout = run.state, run.config.stuck_timeout_ms
  local since = timeout and trainer.is_held_up_since()
  local firing = state.firing
  if firing then
    local is_still_awaited = timeout and firing.buffer == state.next_buffer and state.trainer.waiting_since
    state.firing = is_still_awaited and firing or nil
    return is_still_awaited
  end
  if not since or state.clock - since < timeout then
    return false
  end
  local most = run.config.stuck_max_reserved
  if most and tables.counts(state.next_buffer)[2] > most then
    return false
  end
  state.firing = { buffer = state.next_buffer, at = state.clock }
  return true
end

-- The front-most reservation of buffer H, but for those that were granted since the timeout fired.
local function front_most_of_next(fired_at)
  local buffer = run.state.next_buffer
  for slot = tables.S - tables.counts(buffer)[2], tables.S - 1 do
    local reserved = tables.reserved_at(buffer * tables.S + slot)
    if tonumber(redis.call('ZSCORE', keys.ages, reserved.id)) <= fired_at then
      return reserved.id
    end
  end
end

-- The reservation that is the oldest of the run; of several, the front-most.
local function oldest()
  local first = redis.call('ZRANGE', keys.ages, 0, 0, 'WITHSCORES')
  if not first[1] then
    return nil
  end
  local found, found_at
  -- Those of one age were granted within a millisecond.
  for _, id in ipairs(redis.call('ZRANGE', keys.ages, first[2], first[2], 'BYSCORE')) do
    local position = tables.reserved_position(id, entries.load(id).version)
    if not found or position < found_at then
      found, found_at = id, position
    end
  end
  return found
end

local function record(reason, ids)
  tables.wake()
  run.record({ type = 'expire', reason = reason, ids = ids, effects = tables.take_effects() })
end

-- One step of the stuck timeout. Returns whether it did anything.
function entries.give_up_stuck()
  if not fires() then
    return false
  end
  local state = run.state
  local buffer, fired_at = state.next_buffer, state.firing.at
  local ids = {}
  local function give_up(id)
    entries.discard(id, entries.load(id), 'stuck_timeout')
    ids[#ids + 1] = id
  end
  local has_none = tables.counts(buffer)[2] == 0
  if has_none and not state.firing.begun then
    local id = oldest()
    if id then
      give_up(id)
    end
  end
  state.firing.begun = true
  while not has_none and #ids < sessions.STEP and not tables.is_ready(buffer) do
    local id = front_most_of_next(fired_at)
    if not id then
      break
    end
    give_up(id)
  end
  if #ids < sessions.STEP then
    state.firing, state.stuck_fired = nil, state.clock
  end
  if #ids > 0 then
    record('stuck_timeout', ids)
  end
  return #ids > 0
end

-- One step of discarding what has been reserved for too long, whatever its lease. Returns whether there was anything.
function entries.give_up_timed_out()
  local timeout = run.config.reservation_timeout_ms
  if not timeout then
    return false
  end
  local granted_until = string.format('%d', run.state.clock - timeout)
  local ids = redis.call('ZRANGE', keys.ages, '-inf', granted_until, 'BYSCORE', 'LIMIT', 0, sessions.STEP)
  if #ids > 0 then
    record('timed_out', sessions.discard_all(ids, 'timed_out'))
  end
  return #ids > 0
end
