-- How a batch, whole or in pieces, gets to the trainer (protocol.md, Take, Stream and Drain).

-- Takes down that the trainer calls. It waits from its first call that found nothing until one is answered, or until none
-- called for a minute.
function trainer.calls()
  local state, times = run.state, run.state.trainer
  if times.waiting_since and state.clock - times.last_call > trainer.MINUTE_MS then
    trainer.stops_waiting()
  end
  times.last_call, times.last_call_at_ms = state.clock, run.now_ms
end

function trainer.stops_waiting()
  local times = run.state.trainer
  times.waiting_since, times.waiting_since_at_ms = nil, nil
end

-- Ends a call for which there is nothing. `wanted` is how many entries buffer H must hold for a piece, where one is asked for.
function trainer.waits(wanted)
  local state, times = run.state, run.state.trainer
  local finished = tables.is_finished()
  if not finished and not times.waiting_since then
    times.waiting_since, times.waiting_since_at_ms = state.clock, run.now_ms
  end
  if wanted then
    times.wanted = math.min(times.wanted or wanted, wanted)
  end
  return run.finish({
    outcome = 'not_ready',
    buffer_state = tables.buffer_state(state.next_buffer),
    occupied = tables.counts(state.next_buffer)[1],
    needed = tables.B,
    waiting_for_ms = times.waiting_since and state.clock - times.waiting_since or 0,
    finished = finished,
  })
end

-- The trainer is answered with entries.
function trainer.is_given()
  local times = run.state.trainer
  trainer.stops_waiting()
  times.training_since_at_ms = times.training_since_at_ms or run.now_ms
end

-- Some more entries of buffer H are taken, in slot order. The first of them begin the record of its batch. What calls wait for is
-- given: not before, since one that is given an earlier piece again says nothing of the others.
function batches.take_piece(count)
  local state = run.state
  state.trainer.wanted = nil
  local version = state.next_buffer
  local record = batches.load(version) or { taken_at_ms = run.now_ms }
  state.streamed = tables.streamed() + count
  record.entries = state.streamed
  state.totals.trained = state.totals.trained + count
  redis.call('HSET', keys.batches, version, cmsgpack.pack(record))
end

-- Buffer H becomes a batch of what is occupied in it, and what is reserved there is surplus: by Packed, no later place is
-- free for it.
function batches.complete()
  local state = run.state
  local version = state.next_buffer
  local count = tables.counts(version)
  for slot = tables.S - count[2], tables.S - 1 do
    local reserved = tables.reserved_at(version * tables.S + slot)
    entries.drop_reserved(reserved.id, entries.load(reserved.id), 'surplus')
  end
  batches.take_piece(count[1] - tables.streamed())
  if count[1] < tables.B then
    local record = batches.load(version)
    record.final = true
    redis.call('HSET', keys.batches, version, cmsgpack.pack(record))
  end
  table.remove(state.buffers, 1)
  state.next_buffer, state.streamed = version + 1, nil
  state.trainer.delivered = version
  entries.discard_surplus()
  batches.let_go()
end

-- Discards what a drained run has left over, front-most first, and ends the call: the caller goes round again.
function batches.discard_the_rest()
  local first = tables.occupied_field(run.state.next_buffer, 0)
  local discarded = {}
  while #discarded < sessions.STEP do
    local id = redis.call('HGET', keys.occupied, first)
    if not id then
      break
    end
    entries.discard(id, entries.load(id), 'drained')
    discarded[#discarded + 1] = id
  end
  tables.wake()
  run.record({ type = 'discard', reason = 'drained', ids = discarded, effects = tables.take_effects() })
  return run.finish({ outcome = 'drained' })
end
