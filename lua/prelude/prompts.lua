-- The prompt queue (protocol.md, The prompt queue): every prompt that was fed is in exactly one state.
--
-- A record of `prompts` is { id, data?, expected_tokens?, attempt, state, entry?, reason? }: `state` is queued, handed_out
-- (what it is then follows from its entry), filtered, failed or dropped; `entry` is the one that it was handed out with last,
-- `reason` why the last one that was discarded was. In state.prompts stand how many were fed, returned to the back, filtered,
-- have failed and were dropped; how many are in each other state follows from the tables.
--
-- In `queue` each queued prompt is scored by the window of feed positions that it is handed out in, or behind all of them by
-- the number of its return. Within a window the names of its members are in order: what has the most expected tokens first,
-- then those of unknown length, then by position.
prompts.BACK = 2 ^ 52
prompts.MOST_TOKENS = 2 ^ 53
prompts.FATES = {
  lease_expired = 'front',
  worker_restarted = 'front',
  abandoned = 'front_uncounted',
  rewound = 'front_uncounted',
  too_stale = 'front_uncounted',
  surplus = 'front_uncounted',
  stuck_timeout = 'back',
  timed_out = 'back',
  group_failed = 'back',
  zero_variance = 'filtered',
  drained = 'dropped',
}
prompts.RETURNS = { front = true, front_uncounted = true, back = true }

function prompts.load(position)
  local packed = redis.call('HGET', keys.prompts, position)
  return packed and cmsgpack.unpack(packed)
end

function prompts.save(position, prompt)
  redis.call('HSET', keys.prompts, position, cmsgpack.pack(prompt))
end

function prompts.member(position, prompt)
  local place = string.format('%016d', position)
  if run.config.order ~= 'longest_first' then
    return place
  end
  local tokens = prompt.expected_tokens
  return (tokens and string.format('%016d', prompts.MOST_TOKENS - tokens) or 'unknown') .. ':' .. place
end

function prompts.position_of(member)
  return tonumber(string.sub(member, -16))
end

-- The position and the record of the prompt that is handed out next, or nothing.
function prompts.next()
  local member = redis.call('ZRANGE', keys.queue, 0, 0)[1]
  if member then
    local position = prompts.position_of(member)
    return position, prompts.load(position)
  end
end

function prompts.put_in_front(position, prompt)
  local is_sorted = run.config.order == 'longest_first'
  local window = is_sorted and math.floor(position / run.config.order_window) or position
  redis.call('ZADD', keys.queue, window, prompts.member(position, prompt))
end

function prompts.put_behind(position, prompt)
  local known = run.state.prompts
  redis.call('ZADD', keys.queue, prompts.BACK + known.returned, prompts.member(position, prompt))
  known.returned = known.returned + 1
end

function prompts.tell(id, position, state, attempt)
  tables.effect({ effect = 'prompt', id = id, position = position, state = state, attempt = attempt })
end

-- The prompt leaves the queue with the entry, which knows its position and attempt.
function prompts.give(id, entry, prompt, state)
  redis.call('ZREM', keys.queue, prompts.member(entry.position, prompt))
  prompt.state, prompt.entry, prompt.attempt = 'handed_out', id, entry.attempt
  prompts.save(entry.position, prompt)
  prompts.tell(id, entry.position, state, entry.attempt)
end

-- Late occupy: whether the prompt of a discarded entry was handed out again, has failed or was dropped.
function prompts.is_superseded(id, entry)
  if not entry.position then
    return false
  end
  local prompt = prompts.load(entry.position)
  return not (prompt and prompt.entry == id and prompt.state == 'queued')
end

-- Late occupy: the prompt leaves the queue, for the attempt that the entry was.
function prompts.reclaim(id, entry)
  if entry.position then
    prompts.give(id, entry, prompts.load(entry.position), 'occupied')
  end
end

-- What becomes of the prompt of an entry that is discarded, and which attempt at it this was or the next one will be.
-- prompts.requeue is set while a client discards that wishes that it is tried again.
function prompts.fate(entry, reason)
  local fate = prompts.FATES[reason]
  if not fate then
    local otherwise = entry.state == 'occupied' and 'filtered' or 'failed'
    fate = prompts.requeue and 'front' or otherwise
  end
  if prompts.RETURNS[fate] then
    for _, dropped in ipairs(run.config.drop_on) do
      if dropped == reason then
        return 'dropped', entry.attempt
      end
    end
  end
  if fate ~= 'front' and fate ~= 'back' then
    return fate, entry.attempt
  end
  if entry.attempt >= run.config.max_attempts then
    return 'failed', entry.attempt
  end
  return fate, entry.attempt + 1
end

-- An entry is discarded that is reserved or occupied until now.
function prompts.settle(id, entry, reason)
  local position = entry.position
  if not position then
    return
  end
  local prompt = prompts.load(position)
  local fate, attempt = prompts.fate(entry, reason)
  prompt.reason, prompt.attempt = reason, attempt
  if prompts.RETURNS[fate] then
    prompt.state = 'queued'
    local put = fate == 'back' and prompts.put_behind or prompts.put_in_front
    put(position, prompt)
  else
    prompt.state = fate
    run.state.prompts[fate] = run.state.prompts[fate] + 1
    redis.call('ZADD', keys.fates, 0, prompts.fate_member(fate, position))
  end
  prompts.save(position, prompt)
  prompts.tell(id, position, prompt.state, attempt)
end

function prompts.fate_member(state, position)
  return string.format('%s:%016d', state, position)
end

-- The entry is forgotten, and with it the prompt that was trained or filtered by it. What failed or was dropped stays listed.
function prompts.forget(id, entry)
  local position = entry.position
  local prompt = position and prompts.load(position)
  if not prompt or prompt.entry ~= id then
    return
  end
  if prompt.state == 'filtered' then
    redis.call('ZREM', keys.fates, prompts.fate_member('filtered', position))
  elseif prompt.state ~= 'handed_out' then
    return
  end
  redis.call('HDEL', keys.prompts, position)
end

-- Gives each grant the data of its prompt. It is not remembered with the answers to requests, where it would stand twice.
function prompts.attach_data(grants)
  for _, grant in ipairs(grants) do
    local prompt = grant.position and prompts.load(grant.position)
    grant.data = prompt and prompt.data or nil
  end
end

-- How many are in each state, or nil where there is no queue.
function prompts.counts()
  local state, known = run.state, run.state.prompts
  if not known then
    return nil
  end
  local in_flight, occupied = 0, 0
  for _, count in ipairs(state.buffers) do
    occupied, in_flight = occupied + count[1], in_flight + count[2]
  end
  return {
    queued = redis.call('ZCARD', keys.queue),
    in_flight = in_flight,
    occupied = occupied - (state.streamed or 0),
    trained = state.totals.trained,
    filtered = known.filtered,
    failed = known.failed,
    dropped = known.dropped,
  }
end
