#!lua
-- Occupy: finishes entries, one after another, each a step of its own.
--
-- args     worker?, session?, items: 1 to 25 of { id, finish { reward?, tokens?, payload?, meta? } }
-- body     results, one for each item: { id, state, buffer, slot, buffer_state, late } or { id, code, reason? } with the
--          codes unknown_trajectory and trajectory_discarded
-- event    occupy, for each entry that this call finished; `late` if it had been discarded (Late occupy)
--
-- Safe to send twice: an entry that is occupied already only shows where it is.
--@include run
--@include tables
--@include entries
--@include sessions

local stopped = open() or enter()
if stopped then
  return stopped
end

local function current_place(id, entry)
  return {
    id = id,
    state = entry.buffer < state.next_buffer and 'taken' or 'occupied',
    buffer = entry.buffer,
    slot = entry.slot,
    buffer_state = buffer_state(entry.buffer),
    late = entry.late or false,
  }
end

local function record_occupy(id, entry)
  record({
    type = 'occupy',
    worker = args.worker or entry.worker,
    session = args.worker and string.sub(session_name, #args.worker + 2) or entry.session,
    late = entry.late,
    ids = { id },
    effects = take_effects(),
  })
end

local function occupy(item)
  local id = item.id
  local entry = load_entry(id)
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
    admit(id, entry, position)
    entry.late, entry.reason, entry.discarded_from = true, nil, nil
    state.totals.late = state.totals.late + 1
    redis.call('ZREM', CANCELLED, session_member(holder_of(entry), id))
    redis.call('ZREM', FORGET, 'entry:' .. id)
  else
    redis.call('ZREM', HELD, session_member(holder_of(entry), id))
  end
  for field, value in pairs(item.finish) do
    entry[field] = value
  end
  finish_entry(id, entry)
  if session then
    session.finished = session.finished + 1
  end
  record_occupy(id, entry)
  return current_place(id, entry)
end

local results = {}
for index, item in ipairs(args.items) do
  results[index] = occupy(item)
end
if session then
  save_session()
end
wake_for_tables()
return finish({ results = results })
