-- What becomes of an entry: admitted, finished, discarded. Each changes the tables, the entry's record, the indexes by
-- session and the totals together, and lists its effects.
local HOUR_MS = 3600000
local CLIENT_REASONS = 32
local LEDGER_REASONS = { lease_expired = true, worker_restarted = true, abandoned = true, surplus = true }
local LATE_REASONS = { lease_expired = true, abandoned = true }

local function session_key(worker, token)
  return worker .. '\0' .. token
end

local function session_member(key, id)
  return key .. '\0' .. id
end

local function holder_of(entry)
  return session_key(entry.worker, entry.session)
end

local function admit(id, entry, position)
  put_reserved(id, entry.version, position)
  effects[#effects + 1] =
    { effect = 'reserved', id = id, version = entry.version, to = place(position), prompt = entry.prompt }
end

-- Counts a discard under its reason; a run knows CLIENT_REASONS words of its clients, further ones count as `other`.
local function count_discard(reason)
  local by_reason = state.totals.discarded
  if not by_reason[reason] and not LEDGER_REASONS[reason] then
    local words = 0
    for known in pairs(by_reason) do
      words = words + (LEDGER_REASONS[known] and 0 or 1)
    end
    if words >= CLIENT_REASONS then
      reason = 'other'
    end
  end
  by_reason[reason] = (by_reason[reason] or 0) + 1
end

local function mark_discarded(id, entry, reason, from)
  effects[#effects + 1] = { effect = 'discarded', id = id, reason = reason, from = from, payload = entry.payload }
  entry.discarded_from, entry.state, entry.reason = entry.state, 'discarded', reason
  entry.buffer, entry.slot = nil, nil
  save_entry(id, entry)
  redis.call('ZADD', FORGET, state.clock + HOUR_MS, 'entry:' .. id)
  count_discard(reason)
  wake('admission')
end

-- Takes a reserved entry out of its slot and returns the gap. Its holder is told, unless it did this itself or has ended.
local function drop_reserved(id, entry, reason, caller)
  local position = reserved_position(id, entry.version)
  local holder = holder_of(entry)
  leave_reserved(id, entry.version, position)
  redis.call('ZREM', HELD, session_member(holder, id))
  if holder ~= caller and reason ~= 'worker_restarted' then
    redis.call('ZADD', CANCELLED, 0, session_member(holder, id))
    wake_worker(entry.worker)
  end
  mark_discarded(id, entry, reason, place(position))
  return position
end

-- Takes an occupied entry out of its buffer, fills the hole with the buffer's last one, and returns the gap.
local function drop_occupied(id, entry, reason)
  local buffer, hole = entry.buffer, entry.slot
  local last_id, last = pop_occupied(buffer)
  mark_discarded(id, entry, reason, { buffer = buffer, slot = hole })
  local gap = buffer * S + counts(buffer)[1]
  if last_id ~= id then
    count_version(buffer, entry.version, -1)
    count_version(buffer, last.version, 1)
    last.slot = hole
    redis.call('HSET', OCCUPIED, occupied_field(buffer, hole), last_id)
    save_entry(last_id, last)
    effects[#effects + 1] = { effect = 'moved', id = last_id, from = place(gap), to = place(buffer * S + hole) }
  end
  return gap
end

-- The surplus rule (S > B): each reservation whose open buffers up to its deadline are all ready is discarded, front-most
-- first, with a cascade into each gap.
local function discard_surplus()
  if S == B then
    return
  end
  local last_ready
  for buffer = first_buffer(), last_buffer() do
    if not is_ready(buffer) then
      break
    end
    last_ready = buffer
  end
  if not last_ready then
    return
  end
  while true do
    local victim = front_most(0, last_ready - ETA)
    if not victim then
      return
    end
    cascade(drop_reserved(victim.id, load_entry(victim.id), 'surplus'))
  end
end

local function discard_entry(id, entry, reason, caller)
  local gap
  if entry.state == 'reserved' then
    gap = drop_reserved(id, entry, reason, caller)
  else
    gap = drop_occupied(id, entry, reason)
  end
  settle(gap)
  discard_surplus()
end

-- Occupy, 2 and 3: the buffer that the entry finishes in once the cascade has ended at `gap`. With S > B every legal buffer
-- may be full; then the front-most reservation of the earliest that is not ready makes room.
local function make_room(version, gap)
  local full
  for buffer = first_buffer(), math.min(version + ETA, last_buffer()) do
    if not is_ready(buffer) then
      if has_empty_slot(buffer) then
        return buffer
      end
      full = full or buffer
    end
  end
  local displaced = reserved_at(full * S + counts(full)[1])
  if buffer_of(gap) <= displaced.version + ETA then
    move_reserved(displaced, gap)
  else
    drop_reserved(displaced.id, load_entry(displaced.id), 'surplus')
  end
  return full
end

-- Occupy of an entry that is reserved.
local function finish_entry(id, entry)
  local from = reserved_position(id, entry.version)
  leave_reserved(id, entry.version, from)
  local buffer = make_room(entry.version, cascade(from))
  entry.state, entry.occupied_at_ms = 'occupied', now_ms
  local to = put_occupied(id, entry, buffer)
  effects[#effects + 1] = { effect = 'occupied', id = id, from = place(from), to = to }
  state.totals.occupied = state.totals.occupied + 1
  discard_surplus()
end

-- Whether the discarded entry may still be finished, and in which slot (Late occupy).
local function late_position(entry)
  return LATE_REASONS[entry.reason] and admission_position(entry.version)
end

-- Waits that a change of the tables may end.
local function wake_for_tables()
  if config.max_concurrency then
    wake('admission')
  end
  if is_takeable() then
    wake('batch')
  end
end

-- The effects of the step so far; the next step of the same script begins a list of its own.
local function take_effects()
  local taken = effects
  effects = {}
  return taken
end
