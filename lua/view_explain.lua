#!lua flags=no-writes
-- Shows what the trainer waits for: the front-most reservations of buffer H with those who hold them, the oldest
-- reservation of the run, and what stands in the way of new ones. Its cost is bounded by `most` and η.
--
-- args     most (how many reservations of H to show)
-- body     config, state, now_ms; of the state on the run's clock: clock, waiting_since?, last_call?, stuck_since?,
--          last_admission?; draining? (finish | keep), streamed, generating, queued, last_reserve_at_ms?;
--          waiting_on: [waiting], oldest?: waiting, a waiting being { id, entry, buffer, slot, granted_at, orphan,
--          lease_left_ms?, heartbeat_at_ms? }; without lease_left_ms nobody holds it
--@include run
--@include sessions
--@include tables
--@include entries

local stopped = run.load()
if stopped then
  return stopped
end
run.advance_clock()
tables.open()

local state = run.state

-- The entry with what its holder's lease has left; nobody holds an orphan.
local function shown(id, position)
  local entry = entries.load(id)
  local at = tables.place(position)
  local waiting = {
    id = id,
    entry = entry,
    buffer = at.buffer,
    slot = at.slot,
    granted_at = tonumber(redis.call('ZSCORE', keys.ages, id) or entry.granted_at),
    orphan = redis.call('ZSCORE', keys.orphans, id) and true or false,
  }
  local key = entries.holder_of(entry)
  local holder = not waiting.orphan and sessions.load(key)
  if holder and holder.ended then
    waiting.lease_left_ms, waiting.heartbeat_at_ms = 0, holder.heartbeat_at_ms
  elseif holder then
    waiting.lease_left_ms, waiting.heartbeat_at_ms = sessions.lease(key, holder)
  end
  return waiting
end

local function reserved_in(buffer)
  local found = {}
  for version = math.max(buffer - tables.ETA, 0), state.policy_version do
    local base = tables.ring_base(version)
    local low = string.format('%d', base + buffer * tables.S)
    local past = string.format('(%d', base + (buffer + 1) * tables.S)
    local range = redis.call('ZRANGE', keys.reserved, low, past, 'BYSCORE', 'LIMIT', 0, args.most, 'WITHSCORES')
    for index = 1, #range, 2 do
      found[#found + 1] = { id = range[index], position = range[index + 1] - base }
    end
  end
  table.sort(found, function(one, other)
    return one.position < other.position
  end)
  return found
end

local waiting_on = {}
if state.buffers[1] and state.trainer_version == state.policy_version then
  for index, each in ipairs(reserved_in(state.next_buffer)) do
    if index > args.most then
      break
    end
    waiting_on[index] = shown(each.id, each.position)
  end
end

local oldest
local first = redis.call('ZRANGE', keys.ages, 0, 0)[1]
local record = first and entries.load(first)
if record and redis.call('ZSCORE', keys.reserved, first) then
  oldest = shown(first, tables.reserved_position(first, record.version))
end

local times = state.trainer or {}
return run.answer({
  config = run.config,
  state = state,
  now_ms = run.now_ms,
  clock = state.clock,
  waiting_since = times.waiting_since,
  last_call = times.last_call,
  stuck_since = state.stuck_since,
  last_admission = state.last_admission,
  draining = state.draining and (state.draining.queue or 'finish') or nil,
  streamed = state.streamed or 0,
  generating = state.generating or tables.reserved_in_all(),
  last_reserve_at_ms = state.last_reserve_at_ms,
  queued = redis.call('ZCARD', keys.queue),
  waiting_on = waiting_on,
  oldest = oldest,
})
