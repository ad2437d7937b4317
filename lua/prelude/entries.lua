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

-- The newest version that generated a part of the entry.
function entries.newest(entry)
  return entry.newest or entry.version
end

-- How many trajectories of a reserved entry are still generated: the unfinished candidates of a group that is not filled.
function entries.generating(entry)
  if not entry.marks then
    return 1
  end
  if entry.complete == run.config.group_size then
    return 0
  end
  return run.config.group_candidates - entry.complete - entry.failed
end

function entries.stop_generating(entry)
  run.state.generating = run.state.generating - entries.generating(entry)
end

-- Whether max_concurrency lets one more entry be admitted, with all its candidates.
function entries.fit_concurrency()
  local most = run.config.max_concurrency
  return not most or run.state.generating + run.config.group_candidates <= most
end

-- The session that holds the reserved entry does not any more.
function entries.leave_holder(id, entry)
  if entry.orphan then
    redis.call('ZREM', keys.orphans, id)
    entry.orphan = nil
  else
    redis.call('ZREM', keys.held, sessions.member(entries.holder_of(entry), id))
  end
end

function entries.admit(id, entry, position)
  tables.put_reserved(id, entry.version, position)
  run.state.generating = run.state.generating + entries.generating(entry)
  local to = tables.place(position)
  tables.effect({ effect = 'reserved', id = id, version = entry.version, to = to, prompt = entry.prompt })
end
