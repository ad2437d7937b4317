-- The part every script begins with: the run's keys, its state, its clock, its event log, and how a script answers.
--
-- ARGV[1] is one msgpack map. Every script is sent all keys of its run, in this order, and touches no other:
local RUN, ENTRIES, RESERVED, OCCUPIED, SESSIONS, WORKERS, LEASES, HELD, CANCELLED, REQUESTS, FORGET, BATCHES, VERSIONS,
  EVENTS = unpack(KEYS)
local KEY_TYPES = {
  'hash', --  1 run:       layout, config, state; after a deletion layout and tombstone
  'hash', --  2 entries:   id -> entry
  'zset', --  3 reserved:  id scored by version and position (see tables.lua)
  'hash', --  4 occupied:  "buffer:slot" -> id, of open buffers and of kept batches
  'hash', --  5 sessions:  session key -> session
  'zset', --  6 workers:   current session keys, in the order of their names
  'zset', --  7 leases:    session key scored by the run's clock at which its lease ends
  'zset', --  8 held:      "session key NUL id" of every reservation, in the order of the names
  'zset', --  9 cancelled: the same, of what a session has not acknowledged
  'hash', -- 10 requests:  request key -> request, "request key NUL step" -> the answer of that step
  'zset', -- 11 forget:    what is to be forgotten, scored by the run's clock from which it may be
  'hash', -- 12 batches:   buffer -> batch, "buffer/version" -> how many of its occupied entries have that version
  'hash', -- 13 versions:  version -> its weights and when it was published
  'stream', -- 14 events:  the event log; the id of an event is its seq
}

local args = cmsgpack.unpack(ARGV[1])
local config, state, tombstone

-- Instants are the database's clock; everything that is compared with a limit uses state.clock (The run's clock).
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- Topics whose waiting calls this script must wake; the value is the message.
local wakes = {}

local function answer(body)
  return cmsgpack.pack({ seq = state and state.seq or tombstone and tombstone.seq, body = body })
end

-- An outcome that any script may have, and that ends it before it did anything.
local function stop(outcome, fields)
  fields = fields or {}
  fields.outcome = outcome
  return cmsgpack.pack({ seq = state and state.seq or tombstone and tombstone.seq, stop = fields })
end

-- Loads the run. Returns a reply if the script must end here. Nothing was written then, and afterwards nothing can fail:
-- Redis keeps what a script wrote before it failed, so every key is checked for its type first.
local function open()
  local layout, packed_config, packed_state, packed_tombstone =
    unpack(redis.call('HMGET', RUN, 'layout', 'config', 'state', 'tombstone'))
  if layout ~= tostring(args.layout) then
    if not layout and not args.creating then
      return stop('unknown_run')
    end
    return stop('layout', { found = tonumber(layout or 0) })
  end
  for index, expected in ipairs(KEY_TYPES) do
    local found = redis.call('TYPE', KEYS[index]).ok
    if found ~= expected and found ~= 'none' then
      return redis.error_reply('BROKEN ' .. KEYS[index] .. ' is a ' .. found .. ' and must be a ' .. expected)
    end
  end
  tombstone = packed_tombstone and cmsgpack.unpack(packed_tombstone)
  if not packed_state then
    if args.creating then
      return nil
    end
    return stop('unknown_run')
  end
  config, state = cmsgpack.unpack(packed_config), cmsgpack.unpack(packed_state)
end

-- The run's clock goes on by the time since it was last looked at, unless that is longer than the servers' tick ever
-- leaves it alone: then no server reached the database, and the gap does not count. It stands still while the database's
-- clock is behind where it was. The limit is far below a lease, so that gaps that do count cannot use one up.
local function advance_clock()
  local passed = now_ms - state.time
  local longest = math.max(500, config.lease_ms / 10)
  if passed > 0 and passed <= longest then
    state.clock = state.clock + passed
  end
  state.time = now_ms
end

local function wake(topic, message)
  wakes[topic] = message or ''
end

local function wake_worker(worker)
  wakes.cancelled = wakes.cancelled and wakes.cancelled .. ' ' .. worker or worker
end

local function publish_wakes()
  local prefix = string.sub(RUN, 1, -4) .. 'wake:'
  for topic, message in pairs(wakes) do
    redis.call('PUBLISH', prefix .. topic, message)
  end
end

-- Appends one event: the step that it records is committed with it.
local function record(event)
  state.seq = state.seq + 1
  state.mark = args.mark
  event.seq, event.at_ms, event.mark = state.seq, now_ms, args.mark
  redis.call('XADD', EVENTS, string.format('%d-0', state.seq), 'event', cmsgpack.pack(event))
  wake('events')
end

-- Every script that may write ends here, whether or not it recorded an event: the clock went on.
local function save()
  redis.call('HSET', RUN, 'state', cmsgpack.pack(state))
  publish_wakes()
end

local function finish(body)
  save()
  return answer(body)
end

local function load_entry(id)
  local packed = redis.call('HGET', ENTRIES, id)
  return packed and cmsgpack.unpack(packed)
end

local function save_entry(id, entry)
  redis.call('HSET', ENTRIES, id, cmsgpack.pack(entry))
end
