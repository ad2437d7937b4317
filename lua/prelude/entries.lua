-- The records of entries, and how one is admitted.

function entries.load(id)
  local packed = redis.call('HGET', keys.entries, id)
  return packed and cmsgpack.unpack(packed)
end

function entries.save(id, entry)
  redis.call('HSET', keys.entries, id, cmsgpack.pack(entry))
end

function entries.holder_of(entry)
  return sessions.key_of(entry.worker, entry.session)
end

function entries.admit(id, entry, position)
  tables.put_reserved(id, entry.version, position)
  local to = tables.place(position)
  tables.effect({ effect = 'reserved', id = id, version = entry.version, to = to, prompt = entry.prompt })
end
