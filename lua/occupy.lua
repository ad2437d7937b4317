#!lua
-- Occupy: finishes entries, one after another, each a step of its own.
--
-- args     calls: [{ mark, worker?, session?, items: [{ id, finish { reward?, tokens?, payload?, meta? } }] }]; of several, at most 8 items
-- body     replies, to each call: results, one for each item: { id, state, buffer, slot, buffer_state, late } or
--          { id, code, reason? } with the codes unknown_trajectory and trajectory_discarded
-- event    occupy, for each entry that this call finished; `late` if it had been discarded (Late occupy)
--
-- Safe to send twice: an entry that is occupied already only shows where it is.
--@include run
--@include sessions
--@include tables
--@include entries
--@include moves
--@include discarding

local LATE_REASONS = { lease_expired = true, abandoned = true }

-- Occupy, 2 and 3: the buffer that the entry finishes in once the cascade has ended at `gap`. With S > B every legal buffer
-- may be full; then the front-most reservation of the earliest that is not ready makes room.
local function make_room(version, gap)
  local full
  for buffer = tables.first_buffer(), math.min(version + tables.ETA, tables.last_buffer()) do
    if not tables.is_ready(buffer) then
      if tables.has_empty_slot(buffer) then
        return buffer
      end
      full = full or buffer
    end
  end
  local displaced = tables.reserved_at(full * tables.S + tables.counts(full)[1])
  if tables.buffer_of(gap) <= displaced.version + tables.ETA then
    tables.move_reserved(displaced, gap)
  else
    entries.drop_reserved(displaced.id, entries.load(displaced.id), 'surplus')
  end
  return full
end

-- Occupy of an entry that is reserved.
local function finish(id, entry)
  local from = tables.reserved_position(id, entry.version)
  tables.leave_reserved(id, entry.version, from)
  local buffer = make_room(entry.version, tables.cascade(from))
  entry.state, entry.occupied_at_ms = 'occupied', run.now_ms
  local to = tables.put_occupied(id, entry, buffer)
  tables.effect({ effect = 'occupied', id = id, from = tables.place(from), to = to })
  run.state.totals.occupied = run.state.totals.occupied + 1
  entries.discard_surplus()
end

-- Whether the discarded entry may still be finished, and in which slot (Late occupy).
local function late_position(entry)
  return LATE_REASONS[entry.reason] and tables.admission_position(entry.version)
end

local function current_place(id, entry)
  return {
    id = id,
    state = entry.buffer < run.state.next_buffer and 'taken' or 'occupied',
    buffer = entry.buffer,
    slot = entry.slot,
    buffer_state = tables.buffer_state(entry.buffer),
    late = entry.late or false,
  }
end

local function record_occupy(call, id, entry)
  run.record({
    type = 'occupy',
    worker = call.worker or entry.worker,
    session = sessions.caller and sessions.caller_token or entry.session,
    late = entry.late,
    ids = { id },
    effects = tables.take_effects(),
  })
end

local function occupy(call, item)
  local id = item.id
  local entry = entries.load(id)
  if not entry then
    return { id = id, code = 'unknown_trajectory' }
  end
  if entry.state == 'occupied' then
    return current_place(id, entry)
  end
  if entry.state == 'discarded' then
    local position = late_position(entry)
    if not position then
      return { id = id, code = 'trajectory_discarded', reason = entry.reason }
    end
    entries.admit(id, entry, position)
    entry.late, entry.reason, entry.discarded_from = true, nil, nil
    run.state.totals.late = run.state.totals.late + 1
    redis.call('ZREM', keys.cancelled, sessions.member(entries.holder_of(entry), id))
    redis.call('ZREM', keys.forget, 'entry:' .. id)
  else
    redis.call('ZREM', keys.held, sessions.member(entries.holder_of(entry), id))
  end
  for field, value in pairs(item.finish) do
    entry[field] = value
  end
  finish(id, entry)
  if sessions.caller then
    sessions.caller.finished = sessions.caller.finished + 1
  end
  record_occupy(call, id, entry)
  return current_place(id, entry)
end

return sessions.run_calls(function()
  local hashes = { 'entries', 'occupied', 'sessions', 'batches' }
  run.look_at(hashes, { 'reserved', 'leases', 'held', 'cancelled', 'forget' })
end, function(call)
  local results = {}
  for index, item in ipairs(call.items) do
    results[index] = occupy(call, item)
  end
  if sessions.caller then
    sessions.save()
  end
  tables.wake()
  return { results = results }
end)
