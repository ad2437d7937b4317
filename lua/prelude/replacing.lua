-- Re-place (protocol.md, The trainer): the tables are laid out anew from buffer `first` on. The one part of a script that
-- may touch everything.
tables.anew = {} -- what is placed anew: { id, entry, from, finished }, in the order in which it is

local function add(id, entry, from, is_finished)
  tables.anew[#tables.anew + 1] = { id = id, entry = entry, from = from, finished = is_finished }
end

-- Takes the occupied entries from slot `first` on out of a buffer or batch.
local function gather_finished(buffer, first, past)
  for index, id in ipairs(batches.ids(buffer, first, past)) do
    local slot = first + index - 1
    add(id, entries.load(id), { buffer = buffer, slot = slot }, true)
    redis.call('HDEL', keys.occupied, tables.occupied_field(buffer, slot))
  end
  batches.strike(buffer)
end

local function gather_reserved()
  local reserved = redis.call('ZRANGE', keys.reserved, 0, -1, 'WITHSCORES')
  local found = {}
  for index = 1, #reserved, 2 do
    local entry = entries.load(reserved[index])
    local position = reserved[index + 1] - tables.ring_base(entry.version)
    found[#found + 1] = { id = reserved[index], entry = entry, position = position }
  end
  table.sort(found, function(one, other)
    return one.position < other.position
  end)
  for _, each in ipairs(found) do
    add(each.id, each.entry, tables.place(each.position), false)
  end
  redis.call('DEL', keys.reserved)
end

-- Forgets what was taken of buffer H, which stays trained, and is in no batch that is kept. Returns how many entries they are.
function tables.let_go_of_pieces()
  local streamed = tables.streamed()
  batches.forget(run.state.next_buffer, 0, streamed)
  return streamed
end

-- Takes out everything from buffer `first` on, finished entries first, by place. What was let go of is forgotten instead, and
-- of buffer H the `forgotten` front-most entries are gone already.
function tables.take_out(first, forgotten)
  local state = run.state
  batches.each(math.max(first, state.pruned.buffer), state.next_buffer, function(batch)
    local count = batches.load(batch).entries
    if batch < state.oldest_kept then
      batches.forget(batch, batch == state.pruned.buffer and state.pruned.slot or 0, count)
      batches.strike(batch)
    else
      gather_finished(batch, 0, count)
      state.totals.trained = state.totals.trained - count
    end
  end)
  for buffer = state.next_buffer, tables.last_buffer() do
    gather_finished(buffer, buffer == state.next_buffer and forgotten or 0, tables.counts(buffer)[1])
  end
  state.totals.trained = state.totals.trained - tables.streamed() + forgotten
  gather_reserved()
end

local function discard(each, reason)
  if not each.finished then
    entries.take_from_holder(each.id, each.entry, reason)
  end
  entries.mark_discarded(each.id, each.entry, reason, each.from)
end

-- The latest legal empty slot. Nothing is occupied yet, so that all that was placed stands at the rear of its buffer.
local function latest_position(each, finished)
  for buffer = math.min(each.entry.version + tables.ETA, tables.last_buffer()), tables.first_buffer(), -1 do
    local is_full = each.finished and (finished[buffer] or 0) == tables.B
    if not is_full and tables.has_empty_slot(buffer) then
      return buffer * tables.S + tables.S - tables.counts(buffer)[2] - 1
    end
  end
end

-- Places what was taken out in the window that is open now, without what `reason_of` has a reason to discard. Its effects
-- are what was discarded, in that order, and then where everything is, front-most first, as if all had happened at once.
function tables.lay_out(reason_of)
  local origins, placed, finished = {}, {}, {}
  for _, each in ipairs(tables.anew) do
    origins[each.id] = each.from
    local reason = reason_of(each.entry)
    if reason then
      discard(each, reason)
    else
      placed[#placed + 1] = each
    end
  end
  local to_finish = {}
  for index, each in ipairs(placed) do
    local position = latest_position(each, finished)
    if not position then
      discard(each, 'too_stale')
    else
      tables.put_reserved(each.id, each.entry.version, position)
      if each.finished then
        local buffer = tables.buffer_of(position)
        finished[buffer] = (finished[buffer] or 0) + 1
        each.turn = index
        to_finish[#to_finish + 1] = each
      end
    end
  end
  table.sort(to_finish, function(one, other)
    local version, later = one.entry.version, other.entry.version
    return version < later or version == later and one.turn < other.turn
  end)
  for _, each in ipairs(to_finish) do
    entries.finish(each.id, each.entry)
  end
  entries.discard_surplus()

  local effects = {}
  for _, effect in ipairs(tables.take_effects()) do
    if effect.effect ~= 'moved' then
      effect.from = effect.from and origins[effect.id] or effect.from
      effects[#effects + 1] = effect
    end
  end
  local now = {}
  for _, each in ipairs(tables.anew) do
    local entry = each.entry
    local position
    if each.finished then
      position = entry.state == 'occupied' and entry.buffer * tables.S + entry.slot
    elseif redis.call('ZSCORE', keys.reserved, each.id) then
      position = tables.reserved_position(each.id, entry.version)
    end
    if position then
      now[#now + 1] = { id = each.id, from = each.from, position = position }
    end
  end
  table.sort(now, function(one, other)
    return one.position < other.position
  end)
  for _, each in ipairs(now) do
    effects[#effects + 1] = { effect = 'replaced', id = each.id, from = each.from, to = tables.place(each.position) }
  end
  return effects
end
