-- The slot tables (protocol.md, The slot tables). The production form of src/protocol/tables.
--
-- A position is `buffer * S + slot`. Where a reserved entry sits is told by its score in RESERVED and by nothing else:
-- (version modulo η + 1) * RING + position. The versions of reserved entries are at most η + 1 neighbours, so each has a
-- range of scores of its own and the front-most entry of a version is the least of its range. Where an occupied entry sits
-- is told by OCCUPIED, and by its own record for the way back. In state.buffers stand, for each open buffer from
-- next_buffer on, its occupied and its reserved entries: { occupied, reserved }.
local RING = 2 ^ 46

local B, S, ETA
local effects = {}
local heads = {} -- version -> its front-most reserved entry, or false

local function open_tables()
  B, S, ETA = config.batch_size, config.slots_per_buffer, config.max_staleness
end

local function first_buffer()
  return state.next_buffer
end

local function last_buffer()
  return state.policy_version + ETA
end

local function counts(buffer)
  return state.buffers[buffer - state.next_buffer + 1]
end

local function buffer_of(position)
  return math.floor(position / S)
end

local function place(position)
  local buffer = buffer_of(position)
  return { buffer = buffer, slot = position - buffer * S }
end

local function is_ready(buffer)
  return counts(buffer)[1] == B
end

local function has_empty_slot(buffer)
  local count = counts(buffer)
  return count[1] + count[2] < S
end

local function is_takeable()
  return state.policy_version == state.next_buffer and is_ready(state.next_buffer)
end

local function buffer_state(buffer)
  if buffer < state.next_buffer or is_ready(buffer) then
    return 'ready'
  end
  return has_empty_slot(buffer) and 'pending' or 'stuck'
end

local function reserved_in_all()
  local sum = 0
  for _, count in ipairs(state.buffers) do
    sum = sum + count[2]
  end
  return sum
end

local function ring_base(version)
  return version % (ETA + 1) * RING
end

local function head(version)
  local known = heads[version]
  if known == nil then
    local base = ring_base(version)
    local found = redis.call('ZRANGE', RESERVED, base, string.format('(%d', base + RING), 'BYSCORE', 'LIMIT', 0, 1,
      'WITHSCORES')
    known = found[1] and { id = found[1], version = version, position = found[2] - base } or false
    heads[version] = known
  end
  return known
end

-- The front-most reserved entry of the versions from `oldest` to `newest`, or nil.
local function front_most(oldest, newest)
  local first
  for version = math.max(oldest, first_buffer() - ETA, 0), newest do
    local candidate = head(version)
    if candidate and (not first or candidate.position < first.position) then
      first = candidate
    end
  end
  return first
end

local function put_reserved(id, version, position)
  redis.call('ZADD', RESERVED, ring_base(version) + position, id)
  local count = counts(buffer_of(position))
  count[2] = count[2] + 1
  heads[version] = nil
end

local function leave_reserved(id, version, position)
  redis.call('ZREM', RESERVED, id)
  local count = counts(buffer_of(position))
  count[2] = count[2] - 1
  heads[version] = nil
end

local function reserved_position(id, version)
  return redis.call('ZSCORE', RESERVED, id) - ring_base(version)
end

local function reserved_at(position)
  for version = math.max(first_buffer() - ETA, 0), state.policy_version do
    local score = string.format('%d', ring_base(version) + position)
    local id = redis.call('ZRANGE', RESERVED, score, score, 'BYSCORE')[1]
    if id then
      return { id = id, version = version, position = position }
    end
  end
end

local function move_reserved(reserved, to)
  effects[#effects + 1] = { effect = 'moved', id = reserved.id, from = place(reserved.position), to = place(to) }
  leave_reserved(reserved.id, reserved.version, reserved.position)
  put_reserved(reserved.id, reserved.version, to)
end

-- Occupy, 1: while a reserved entry sits before the gap and the gap is legal for it, the earliest such entry moves in.
-- Returns the final gap. Versions rise with every move, so there are at most η + 1.
local function cascade(gap)
  while true do
    local first = front_most(buffer_of(gap) - ETA, state.policy_version)
    if not first or first.position >= gap then
      return gap
    end
    move_reserved(first, gap)
    gap = first.position
  end
end

local function occupied_field(buffer, slot)
  return string.format('%d:%d', buffer, slot)
end

local function count_version(buffer, version, by)
  redis.call('HINCRBY', BATCHES, string.format('%d/%d', buffer, version), by)
end

-- The entry takes the front-most slot behind the occupied ones of the buffer.
local function put_occupied(id, entry, buffer)
  local count = counts(buffer)
  entry.buffer, entry.slot = buffer, count[1]
  redis.call('HSET', OCCUPIED, occupied_field(buffer, count[1]), id)
  count[1] = count[1] + 1
  count_version(buffer, entry.version, 1)
  save_entry(id, entry)
  return { buffer = buffer, slot = entry.slot }
end

-- Takes the last occupied entry out of the buffer and returns it.
local function pop_occupied(buffer)
  local count = counts(buffer)
  count[1] = count[1] - 1
  local field = occupied_field(buffer, count[1])
  local id = redis.call('HGET', OCCUPIED, field)
  redis.call('HDEL', OCCUPIED, field)
  local entry = load_entry(id)
  count_version(buffer, entry.version, -1)
  return id, entry
end

local function promote_last(from_buffer, to_buffer)
  local id, entry = pop_occupied(from_buffer)
  local from = { buffer = from_buffer, slot = entry.slot }
  local to = put_occupied(id, entry, to_buffer)
  effects[#effects + 1] = { effect = 'promoted', id = id, from = from, to = to }
end

-- Discard: cascade; then, while the gap's buffer is not ready, the last occupied entry of the nearest later buffer that has
-- any moves forward, and its old slot is settled in turn.
local function settle(gap)
  while true do
    gap = cascade(gap)
    local buffer = buffer_of(gap)
    if is_ready(buffer) then
      return
    end
    local donor = buffer + 1
    while donor <= last_buffer() and counts(donor)[1] == 0 do
      donor = donor + 1
    end
    if donor > last_buffer() then
      return
    end
    promote_last(donor, buffer)
    gap = donor * S + counts(donor)[1]
  end
end

-- Reserve: the rear-most empty slot of the latest legal buffer that is not ready, or nil.
local function admission_position(version)
  for buffer = math.min(version + ETA, last_buffer()), first_buffer(), -1 do
    if not is_ready(buffer) and has_empty_slot(buffer) then
      return buffer * S + S - counts(buffer)[2] - 1
    end
  end
end
