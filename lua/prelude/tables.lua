-- The slot tables (protocol.md, The slot tables): where entries sit, and the place for the next one.
--
-- A position is `buffer * S + slot`. Where a reserved entry sits is told by its score in `reserved` and by nothing else:
-- (version modulo η + 1) * RING + position. The versions of reserved entries are at most η + 1 neighbours, so each has a
-- range of scores of its own and the front-most entry of a version is the least of its range. Where an occupied entry sits
-- is told by `occupied`, and by its own record for the way back. In state.buffers stand, for each open buffer from
-- next_buffer on, its occupied and its reserved entries: { occupied, reserved }.
tables.RING = 2 ^ 46
tables.effects = {}
tables.heads = {} -- version -> its front-most reserved entry, or false (moves.lua)

-- The numbers of the protocol, by their symbols.
function tables.open()
  local config = run.config
  tables.B, tables.S, tables.ETA = config.batch_size, config.slots_per_buffer, config.max_staleness
  tables.HAS_ORPHANS = config.adopt_groups and config.group_candidates > 1
end

function tables.first_buffer()
  return run.state.next_buffer
end

function tables.last_buffer()
  return run.state.policy_version + tables.ETA
end

function tables.counts(buffer)
  return run.state.buffers[buffer - run.state.next_buffer + 1]
end

function tables.buffer_of(position)
  return math.floor(position / tables.S)
end

function tables.place(position)
  local buffer = tables.buffer_of(position)
  return { buffer = buffer, slot = position - buffer * tables.S }
end

function tables.is_ready(buffer)
  return tables.counts(buffer)[1] == tables.B
end

function tables.has_empty_slot(buffer)
  local count = tables.counts(buffer)
  return count[1] + count[2] < tables.S
end

function tables.is_takeable()
  return run.state.policy_version == run.state.next_buffer and tables.is_ready(run.state.next_buffer)
end

function tables.buffer_state(buffer)
  if buffer < run.state.next_buffer or tables.is_ready(buffer) then
    return 'ready'
  end
  return tables.has_empty_slot(buffer) and 'pending' or 'stuck'
end

function tables.reserved_in_all()
  local sum = 0
  for _, count in ipairs(run.state.buffers) do
    sum = sum + count[2]
  end
  return sum
end

function tables.ring_base(version)
  return version % (tables.ETA + 1) * tables.RING
end

function tables.put_reserved(id, version, position)
  local score = tables.ring_base(version) + position
  redis.call('ZADD', keys.reserved, score, id)
  if tables.HAS_ORPHANS then
    redis.call('ZADD', keys.orphans, 'XX', score, id) -- a group without an owner moves there, too
  end
  local count = tables.counts(tables.buffer_of(position))
  count[2] = count[2] + 1
  tables.heads[version] = nil
end

function tables.reserved_position(id, version)
  return redis.call('ZSCORE', keys.reserved, id) - tables.ring_base(version)
end

function tables.occupied_field(buffer, slot)
  return string.format('%d:%d', buffer, slot)
end

-- Reserve: the rear-most empty slot of the latest legal buffer that is not ready, or nil.
function tables.admission_position(version)
  for buffer = math.min(version + tables.ETA, tables.last_buffer()), tables.first_buffer(), -1 do
    if not tables.is_ready(buffer) and tables.has_empty_slot(buffer) then
      return buffer * tables.S + tables.S - tables.counts(buffer)[2] - 1
    end
  end
end

function tables.effect(effect)
  tables.effects[#tables.effects + 1] = effect
end

-- The effects of the step so far; the next step of the same script begins a list of its own.
function tables.take_effects()
  local taken = tables.effects
  tables.effects = {}
  return taken
end

-- Waits that a change of the tables may end.
function tables.wake()
  if run.config.max_concurrency then
    run.wake('admission')
  end
  if tables.is_takeable() then
    run.wake('batch')
  end
end
