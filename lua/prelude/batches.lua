-- The batches that are kept (protocol.md, The trainer): those from state.oldest_kept to next_buffer, but for the gaps. A
-- gap, { first, past }, are numbers that a forced resume jumped over, and that never were batches. What is below
-- oldest_kept is let go of, and forgotten by the sweeper from state.pruned on, in steps.

-- Calls `visit` with each number from `first` up to, and without, `past`, but for the gaps.
function batches.each(first, past, visit)
  for _, gap in ipairs(run.state.gaps or {}) do
    for number = first, math.min(gap[1], past) - 1 do
      visit(number)
    end
    first = math.max(first, math.min(gap[2], past))
  end
  for number = first, past - 1 do
    visit(number)
  end
end

-- The first of them that is not kept, or nil.
function batches.first_missing(first, past)
  if first < run.state.oldest_kept then
    return first
  end
  for _, gap in ipairs(run.state.gaps or {}) do
    if gap[1] < past and gap[2] > first then
      return math.max(first, gap[1])
    end
  end
end

function batches.oldest()
  local oldest = run.state.oldest_kept
  for _, gap in ipairs(run.state.gaps or {}) do
    if gap[1] <= oldest and oldest < gap[2] then
      oldest = gap[2]
    end
  end
  return oldest < run.state.next_buffer and oldest or nil
end

-- At most keep_batches are kept, but always those from trainer_version on.
function batches.let_go()
  local state = run.state
  local past_limit = state.next_buffer - run.config.keep_batches
  state.oldest_kept = math.max(state.oldest_kept, math.min(past_limit, state.trainer_version))
end

function batches.load(number)
  local packed = redis.call('HGET', keys.batches, number)
  return packed and cmsgpack.unpack(packed)
end

-- The ids of the occupied slots of a buffer, from slot `first` to, and without, `past`.
function batches.ids(buffer, first, past)
  local ids = {}
  for from = first, past - 1, 1000 do
    local fields = {}
    for slot = from, math.min(from + 1000, past) - 1 do
      fields[#fields + 1] = tables.occupied_field(buffer, slot)
    end
    for _, id in ipairs(redis.call('HMGET', keys.occupied, unpack(fields))) do
      ids[#ids + 1] = id
    end
  end
  return ids
end

-- Forgets entries of a batch, from slot `first` to, and without, `past`. Nothing takes it back that they were trained.
function batches.forget(buffer, first, past)
  if first == past then
    return
  end
  local taken_at_ms = batches.load(buffer).taken_at_ms
  for index, id in ipairs(batches.ids(buffer, first, past)) do
    local entry = entries.load(id)
    tables.effect({ effect = 'pruned', id = id, payload = entry.payload, payloads = groups.payloads(id, entry) })
    groups.forget(id, entry)
    prompts.forget(id, entry)
    figures.trained(entry, buffer, taken_at_ms)
    redis.call('HDEL', keys.occupied, tables.occupied_field(buffer, first + index - 1))
    redis.call('HDEL', keys.entries, id)
  end
end

function batches.strike(buffer)
  redis.call('HDEL', keys.batches, buffer)
  for version = math.max(buffer - tables.ETA, 0), buffer do
    redis.call('HDEL', keys.batches, string.format('%d/%d', buffer, version))
  end
end
