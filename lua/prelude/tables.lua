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
  run.at_the_end = tables.note_stuck
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

-- How many entries of buffer H are taken, in its front-most slots (Stream).
function tables.streamed()
  return run.state.streamed or 0
end

-- T == V == H: the trainer waits for buffer H.
function tables.is_idle()
  local state = run.state
  return state.policy_version == state.next_buffer and state.trainer_version == state.policy_version
end

-- Whether a prompt is queued, of those that the ledger hands out.
function tables.has_queued()
  return run.config.prompt_queue and redis.call('ZCARD', keys.queue) > 0
end

-- Whether the run is drained, and there are queued prompts that are still to be handed out.
function tables.finishes_its_queue()
  local draining = run.state.draining
  return draining ~= nil and draining.queue == 'finish' and tables.has_queued()
end

-- Whether draining is what blocks an admission.
function tables.is_draining_to_a_stop()
  return run.state.draining ~= nil and not tables.finishes_its_queue()
end

-- Whether nothing is reserved, or to be reserved, while the run is drained.
function tables.nothing_to_come()
  return tables.reserved_in_all() == 0 and not tables.finishes_its_queue()
end

-- Whether no worker can be admitted, whatever its weights and wherever there is a slot.
function tables.admission_is_blocked()
  local has_no_prompt = run.config.prompt_queue and not tables.has_queued()
  return tables.is_draining_to_a_stop() or not entries.fit_concurrency() or has_no_prompt
end

-- What becomes of the entries of buffer H, if there are some, they do not fill it, and none will come any more: `short` or
-- `discard`. What was streamed is in training already, so that its batch is not discarded.
function tables.last_batch()
  local next_buffer = run.state.next_buffer
  local is_over = run.state.draining and tables.is_idle() and tables.nothing_to_come()
  if is_over and not tables.is_ready(next_buffer) and tables.counts(next_buffer)[1] > 0 then
    return tables.streamed() == 0 and run.config.final_batch or 'short'
  end
end

-- Whether the run is drained and its last version published, so that every process may exit.
function tables.is_finished()
  return run.state.draining ~= nil
    and tables.is_idle()
    and tables.nothing_to_come()
    and tables.counts(run.state.next_buffer)[1] == 0
end

-- Since when buffer H has been stuck, on the run's clock, for the stuck timeout.
function tables.note_stuck()
  local state = run.state
  local is_stuck = state.buffers[1] and tables.buffer_state(state.next_buffer) == 'stuck'
  state.stuck_since = is_stuck and (state.stuck_since or state.clock) or nil
end

-- Whether a trainer that waits can be given something.
function tables.has_what_is_awaited()
  local state = run.state
  if state.policy_version ~= state.next_buffer then
    return false
  end
  local wanted = state.trainer and state.trainer.wanted
  local occupied = tables.counts(state.next_buffer)[1]
  return occupied == tables.B or wanted and occupied >= wanted or tables.last_batch()
end

-- Waits that a change of the tables may end.
function tables.wake()
  if run.config.max_concurrency then
    run.wake('admission')
  end
  if tables.has_what_is_awaited() then
    run.wake('batch')
  end
  if tables.is_finished() then
    for _, topic in ipairs({ 'admission', 'batch', 'version', 'cancelled' }) do
      run.wake(topic)
    end
  end
end
