-- How entries move through the slot tables: the production form of src/protocol/tables/moves.rs.

function tables.head(version)
  local known = tables.heads[version]
  if known == nil then
    local base = tables.ring_base(version)
    local past = string.format('(%d', base + tables.RING)
    local found = redis.call('ZRANGE', keys.reserved, base, past, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
    known = found[1] and { id = found[1], version = version, position = found[2] - base } or false
    tables.heads[version] = known
  end
  return known
end

-- The front-most reserved entry of the versions from `oldest` to `newest`, or nil.
function tables.front_most(oldest, newest)
  local first
  for version = math.max(oldest, tables.first_buffer() - tables.ETA, 0), newest do
    local candidate = tables.head(version)
    if candidate and (not first or candidate.position < first.position) then
      first = candidate
    end
  end
  return first
end

function tables.leave_reserved(id, version, position)
  redis.call('ZREM', keys.reserved, id)
  local count = tables.counts(tables.buffer_of(position))
  count[2] = count[2] - 1
  tables.heads[version] = nil
end

function tables.reserved_at(position)
  for version = math.max(tables.first_buffer() - tables.ETA, 0), run.state.policy_version do
    local score = string.format('%d', tables.ring_base(version) + position)
    local id = redis.call('ZRANGE', keys.reserved, score, score, 'BYSCORE')[1]
    if id then
      return { id = id, version = version, position = position }
    end
  end
end

function tables.move_reserved(reserved, to)
  local from = tables.place(reserved.position)
  tables.effect({ effect = 'moved', id = reserved.id, from = from, to = tables.place(to) })
  tables.leave_reserved(reserved.id, reserved.version, reserved.position)
  tables.put_reserved(reserved.id, reserved.version, to)
end

-- Occupy, 1: while a reserved entry sits before the gap and the gap is legal for it, the earliest such entry moves in.
-- Returns the final gap. Versions rise with every move, so there are at most η + 1.
function tables.cascade(gap)
  while true do
    local first = tables.front_most(tables.buffer_of(gap) - tables.ETA, run.state.policy_version)
    if not first or first.position >= gap then
      return gap
    end
    tables.move_reserved(first, gap)
    gap = first.position
  end
end

function tables.count_version(buffer, version, by)
  redis.call('HINCRBY', keys.batches, string.format('%d/%d', buffer, version), by)
end

-- The entry takes the front-most slot behind the occupied ones of the buffer.
function tables.put_occupied(id, entry, buffer)
  local count = tables.counts(buffer)
  entry.buffer, entry.slot = buffer, count[1]
  redis.call('HSET', keys.occupied, tables.occupied_field(buffer, count[1]), id)
  count[1] = count[1] + 1
  tables.count_version(buffer, entry.version, 1)
  entries.save(id, entry)
  return { buffer = buffer, slot = entry.slot }
end

-- Takes the last occupied entry out of the buffer and returns it.
function tables.pop_occupied(buffer)
  local count = tables.counts(buffer)
  count[1] = count[1] - 1
  local field = tables.occupied_field(buffer, count[1])
  local id = redis.call('HGET', keys.occupied, field)
  redis.call('HDEL', keys.occupied, field)
  local entry = entries.load(id)
  tables.count_version(buffer, entry.version, -1)
  return id, entry
end

function tables.promote_last(from_buffer, to_buffer)
  local id, entry = tables.pop_occupied(from_buffer)
  local from = { buffer = from_buffer, slot = entry.slot }
  local to = tables.put_occupied(id, entry, to_buffer)
  tables.effect({ effect = 'promoted', id = id, from = from, to = to })
end

-- Discard: cascade; then, while the gap's buffer is not ready, the last occupied entry of the nearest later buffer that has
-- any moves forward, and its old slot is settled in turn.
function tables.settle(gap)
  while true do
    gap = tables.cascade(gap)
    local buffer = tables.buffer_of(gap)
    if tables.is_ready(buffer) then
      return
    end
    local donor = buffer + 1
    while donor <= tables.last_buffer() and tables.counts(donor)[1] == 0 do
      donor = donor + 1
    end
    if donor > tables.last_buffer() then
      return
    end
    tables.promote_last(donor, buffer)
    gap = donor * tables.S + tables.counts(donor)[1]
  end
end
