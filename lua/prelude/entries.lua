-- The records of entries, and how one is admitted.

function entries.load(id)
  local packed = redis.call('HGET', keys.entries, id)
  return packed and cmsgpack.unpack(packed)
end

function entries.save(id, entry)
  redis.call('HSET', keys.entries, id, cmsgpack.pack(entry))
end

-- Whether the entry is in a batch, or in a piece of one.
function entries.is_taken(entry)
  local next_buffer = run.state.next_buffer
  return entry.state == 'occupied'
    and (entry.buffer < next_buffer or entry.buffer == next_buffer and entry.slot < tables.streamed())
end

function entries.holder_of(entry)
  return sessions.key_of(entry.worker, entry.session)
end

function entries.admit(id, entry, position)
  tables.put_reserved(id, entry.version, position)
  local to = tables.place(position)
  tables.effect({ effect = 'reserved', id = id, version = entry.version, to = to, prompt = entry.prompt })
end
