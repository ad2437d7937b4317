-- Occupy: how an entry that is reserved finishes (protocol.md, The slot tables).

-- Occupy, 2 and 3: the buffer that the entry finishes in once the cascade has ended at `gap`. With S > B every legal buffer
-- may be full; then the front-most reservation of the earliest that is not ready makes room.
function entries.make_room(version, gap)
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

-- The entry leaves its reserved slot and takes its place among the occupied. Returns both, and saves the entry.
function entries.finish(id, entry)
  local from = tables.reserved_position(id, entry.version)
  tables.leave_reserved(id, entry.version, from)
  redis.call('ZREM', keys.ages, id)
  local buffer = entries.make_room(entry.version, tables.cascade(from))
  return tables.place(from), tables.put_occupied(id, entry, buffer)
end
