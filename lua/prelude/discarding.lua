-- How an entry leaves the tables without being trained. The tables, its record, the indexes by session and the totals
-- change together, and each change is an effect.
entries.HOUR_MS = 3600000
entries.CLIENT_REASONS = 32
entries.LEDGER_REASONS = {
  lease_expired = true,
  worker_restarted = true,
  abandoned = true,
  surplus = true,
  rewound = true,
  too_stale = true,
  stuck_timeout = true,
  timed_out = true,
  group_failed = true,
  group_filled = true,
  zero_variance = true,
  drained = true,
}
sessions.STEP = 50 -- the most reservations that one step discards

-- Counts a discard under its reason; a run knows CLIENT_REASONS words of its clients, further ones count as `other`.
-- Returns the word that it counts as.
function entries.count_discard(reason)
  local by_reason = run.state.totals.discarded
  if not by_reason[reason] and not entries.LEDGER_REASONS[reason] then
    local words = 0
    for known in pairs(by_reason) do
      words = words + (entries.LEDGER_REASONS[known] and 0 or 1)
    end
    if words >= entries.CLIENT_REASONS then
      reason = 'other'
    end
  end
  by_reason[reason] = (by_reason[reason] or 0) + 1
  return reason
end

function entries.mark_discarded(id, entry, reason, from)
  tables.effect({
    effect = 'discarded',
    id = id,
    reason = reason,
    from = from,
    payload = entry.payload,
    payloads = groups.payloads(id, entry),
  })
  prompts.settle(id, entry, reason)
  figures.discarded(entry, reason, entries.count_discard(reason), from.buffer)
  entry.discarded_from, entry.state, entry.reason = entry.state, 'discarded', reason
  entry.buffer, entry.slot = nil, nil
  entries.save(id, entry)
  redis.call('ZADD', keys.forget, run.state.clock + entries.HOUR_MS, 'entry:' .. id)
  run.wake('admission')
end

-- Takes a reserved entry from its holder, or from the former holder of a group that has none; who is told, unless it did this
-- itself or has ended.
function entries.take_from_holder(id, entry, reason, caller)
  local holder = entries.holder_of(entry)
  local has_ended = reason == 'worker_restarted'
  if entry.orphan then
    local former = sessions.load(holder)
    has_ended = not former or former.ended
  end
  entries.stop_generating(entry)
  entries.leave_holder(id, entry)
  redis.call('ZREM', keys.ages, id)
  if holder ~= caller and not has_ended then
    redis.call('ZADD', keys.cancelled, 0, sessions.member(holder, id))
    run.wake_worker(entry.worker)
  end
end

-- Takes a reserved entry out of its slot and returns the gap.
function entries.drop_reserved(id, entry, reason, caller)
  local position = tables.reserved_position(id, entry.version)
  tables.leave_reserved(id, entry.version, position)
  entries.take_from_holder(id, entry, reason, caller)
  entries.mark_discarded(id, entry, reason, tables.place(position))
  return position
end

-- Takes an occupied entry out of its buffer, fills the hole with the buffer's last one, and returns the gap.
function entries.drop_occupied(id, entry, reason)
  local buffer, hole = entry.buffer, entry.slot
  local last_id, last = tables.pop_occupied(buffer)
  entries.mark_discarded(id, entry, reason, { buffer = buffer, slot = hole })
  local gap = buffer * tables.S + tables.counts(buffer)[1]
  if last_id ~= id then
    tables.count_version(buffer, entry.version, -1)
    tables.count_version(buffer, last.version, 1)
    last.slot = hole
    redis.call('HSET', keys.occupied, tables.occupied_field(buffer, hole), last_id)
    entries.save(last_id, last)
    local to = { buffer = buffer, slot = hole }
    tables.effect({ effect = 'moved', id = last_id, from = tables.place(gap), to = to })
  end
  return gap
end

-- The surplus rule (S > B): each reservation whose open buffers up to its deadline are all ready is discarded, front-most
-- first, with a cascade into each gap.
function entries.discard_surplus()
  if tables.S == tables.B then
    return
  end
  local last_ready
  for buffer = tables.first_buffer(), tables.last_buffer() do
    if not tables.is_ready(buffer) then
      break
    end
    last_ready = buffer
  end
  if not last_ready then
    return
  end
  while true do
    local victim = tables.front_most(0, last_ready - tables.ETA)
    if not victim then
      return
    end
    tables.cascade(entries.drop_reserved(victim.id, entries.load(victim.id), 'surplus'))
  end
end

function entries.discard(id, entry, reason, caller)
  local gap
  if entry.state == 'reserved' then
    gap = entries.drop_reserved(id, entry, reason, caller)
  else
    gap = entries.drop_occupied(id, entry, reason)
  end
  tables.settle(gap)
  entries.discard_surplus()
end

-- What becomes of a reservation when its session ends, or gives it up unawares: a group with complete members waits for
-- another owner, if the run adopts groups. Everything else is discarded.
function entries.lose(id, entry, reason)
  local is_kept = tables.HAS_ORPHANS and groups.ENDS_OF_A_SESSION[reason] and (entry.complete or 0) > 0
  if is_kept then
    groups.orphan(id, entry)
  else
    entries.discard(id, entry, reason)
  end
end

function sessions.held_by(key, most)
  local low, high = sessions.range(key)
  local ids = {}
  for index, member in ipairs(redis.call('ZRANGE', keys.held, low, high, 'BYLEX', 'LIMIT', 0, most)) do
    ids[index] = string.sub(member, #key + 2)
  end
  return ids
end

-- Discards the reservations, or leaves them without an owner, one at a time, the one that is front-most then, each settled
-- before the next. Returns those that were treated for this reason: one may become surplus before its turn.
function sessions.discard_all(ids, reason)
  local positions = {}
  for _, id in ipairs(ids) do
    positions[id] = tables.reserved_position(id, entries.load(id).version)
  end
  local discarded, seen = {}, #tables.effects
  while true do
    local first
    for id, position in pairs(positions) do
      if not first or position < positions[first] then
        first = id
      end
    end
    if not first then
      break
    end
    positions[first] = nil
    entries.lose(first, entries.load(first), reason)
    discarded[#discarded + 1] = first
    for index = seen + 1, #tables.effects do
      local effect = tables.effects[index]
      if positions[effect.id] then
        positions[effect.id] = effect.to and effect.to.buffer * tables.S + effect.to.slot
      end
    end
    seen = #tables.effects
  end
  tables.wake()
  return discarded
end
