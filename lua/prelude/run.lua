-- The part every script begins with: the run's keys, its state, its clock, its event log, and how a script answers.
--
-- ARGV[1] is one msgpack map. Every script is sent all keys of its run, in this order, and touches no other.
--
-- The functions of the prelude are fields of tables, and not local: each run of a script makes them anew, and Lua looks
-- for every local that a function uses among all locals that are used by functions, which took longer than the scripts.
local args = cmsgpack.unpack(ARGV[1])
local run, tables, entries, sessions, trainer, batches, weights = {}, {}, {}, {}, {}, {}, {}
local groups, segments, prompts, figures = {}, {}, {}, {}
run.mark = args.mark -- the random word of the next event
local keys = {
  run = KEYS[1], -- hash: layout, config, state; after a deletion layout and tombstone
  entries = KEYS[2], -- hash: id -> entry
  reserved = KEYS[3], -- sorted set: id scored by version and position (see tables.lua)
  occupied = KEYS[4], -- hash: "buffer:slot" -> id, of open buffers and of kept batches
  sessions = KEYS[5], -- hash: session key -> session
  workers = KEYS[6], -- sorted set: current session keys, in the order of their names
  leases = KEYS[7], -- sorted set: session key scored by the run's clock at its last call
  held = KEYS[8], -- sorted set: "session key NUL id" of every reservation, in the order of the names
  cancelled = KEYS[9], -- sorted set: the same, of what a session has not acknowledged
  requests = KEYS[10], -- hash: request key -> request, "request key NUL step" -> the answer of that step
  forget = KEYS[11], -- sorted set: what is to be forgotten, scored by the run's clock from which it may be
  batches = KEYS[12], -- hash: buffer -> batch, "buffer/version" -> how many of its occupied entries have that version
  versions = KEYS[13], -- hash: version -> its weights and when it was published
  events = KEYS[14], -- stream: the event log; the id of an event is its seq
  members = KEYS[15], -- hash: "id:index" -> a member of a group
  orphans = KEYS[16], -- sorted set: the groups without an owner, scored as in `reserved`
  ages = KEYS[17], -- sorted set: every reserved id, scored by the run's clock at its grant
  prompts = KEYS[18], -- hash: feed position -> prompt
  queue = KEYS[19], -- sorted set: the queued prompts, in the order in which they are handed out
  fates = KEYS[20], -- sorted set: "state:position" of the filtered, failed and dropped prompts, in the order of the names
  figures = KEYS[21], -- hash: how many entries finished, were trained, filtered and discarded, by length (see figures.lua)
}

-- Instants are the database's clock; everything that is compared with a limit uses the run's clock.
local time = redis.call('TIME')
run.now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- Topics whose waiting calls this script must wake; the value is the message.
run.wakes = {}

-- Where the run stands: what a server remembers of it, to know whether the database lost writes.
function run.at()
  local last = run.state or run.tombstone
  if last then
    return { seq = last.seq, mark = last.mark, epoch = last.epoch, lineage = last.lineage, compared = run.compared }
  end
end

function run.reply(fields)
  fields.at = run.at()
  return cmsgpack.pack(fields)
end

function run.answer(body)
  return run.reply({ body = body })
end

-- An outcome that any script may have, and that ends it before it did anything.
function run.stop(outcome, fields)
  fields = fields or {}
  fields.outcome = outcome
  return run.reply({ stop = fields })
end

-- Redis keeps what a script wrote before it failed. So every key that the script may write, but for the run's own, is
-- looked at before the first write, with a command that fails if it is of another type; afterwards nothing can fail.
function run.look_at(hashes, sorted_sets)
  for _, name in ipairs(hashes) do
    redis.call('HLEN', keys[name])
  end
  for _, name in ipairs(sorted_sets) do
    redis.call('ZCARD', keys[name])
  end
  redis.call('XLEN', keys.events)
end

function run.look_at_all()
  run.look_at(
    { 'entries', 'occupied', 'sessions', 'requests', 'batches', 'versions', 'members', 'prompts', 'figures' },
    { 'reserved', 'workers', 'leases', 'held', 'cancelled', 'forget', 'orphans', 'ages', 'queue', 'fates' }
  )
end

-- Loads the run. Returns a reply if the script must end here.
function run.load()
  local loaded = redis.call('HMGET', keys.run, 'layout', 'config', 'state', 'tombstone')
  local layout, config, state, tombstone = loaded[1], loaded[2], loaded[3], loaded[4]
  if layout ~= tostring(args.layout) then
    if not layout and not args.creating then
      return run.stop('unknown_run')
    end
    return run.stop('layout', { found = tonumber(layout or 0) })
  end
  run.tombstone = tombstone and cmsgpack.unpack(tombstone)
  if state then
    run.config, run.state = cmsgpack.unpack(config), cmsgpack.unpack(state)
  elseif not args.creating then
    return run.stop('unknown_run')
  end
end

-- Loads the run to change it, after a look at all keys, or at those that `look` looks at. While the run is behind what a
-- server acknowledged, nothing but the scripts that may end this go on.
function run.open(look)
  local stopped = run.load()
  if stopped then
    return stopped
  end
  (look or run.look_at_all)()
  if run.state and not args.even_behind and run.is_behind() then
    redis.call('HSET', keys.run, 'state', cmsgpack.pack(run.state))
    return run.stop('ledger_behind')
  end
end

-- Whether the event that a server acknowledged is in another history than this one. One that was trimmed cannot tell. What
-- a Resume settled is no news: all that was lost before it is above by number, and abandoned.
function run.is_fork(acked)
  if acked.seq <= (run.state.settled or 0) then
    run.compared = true
    return false
  end
  local id = string.format('%d-0', acked.seq)
  local found = redis.call('XRANGE', keys.events, id, id)[1]
  local is_fork = found and cmsgpack.unpack(found[2][2]).mark ~= acked.mark
  run.compared = not is_fork
  return is_fork
end

-- Whether the database lost writes (Sequence): it is below what this server acknowledged, which the server sends with each
-- call, or has another event in its place, which is asked once after each new connection. It stands in the state from then
-- on, so that no server goes on with the run, until a Resume raises seq, epoch and lineage above all that was seen.
function run.is_behind()
  local acked, state = args.acked, run.state
  if acked and (state.seq < acked.seq or acked.mark and run.is_fork(acked)) then
    local known = state.behind or acked
    state.behind = {
      seq = math.max(known.seq, acked.seq),
      epoch = math.max(known.epoch, acked.epoch),
      lineage = math.max(known.lineage, acked.lineage),
    }
  end
  return state.behind ~= nil
end

-- Whether a client has seen more of the run than there is; that refuses its call and no other.
function run.is_below(call)
  return call.seen and run.state.seq < call.seen
end

-- Of a time in which nobody looked at the run, so much counts: no server may have reached the database, and that is to use
-- up neither a lease nor a timeout. More than nothing, or the clock of a run would stand still where servers have so many runs to
-- look after that they come to each of them seldom.
local function longest_gap()
  local config = run.config
  local timeout = math.min(config.reservation_timeout_ms or math.huge, config.stuck_timeout_ms or math.huge)
  return math.max(500, math.floor(math.min(config.lease_ms, timeout) / 10))
end

-- The run's clock goes on by the time since it was last looked at. It stands still while the database's clock is behind where
-- it was.
function run.advance_clock()
  local state = run.state
  local passed = run.now_ms - state.time
  if passed > 0 then
    state.clock = state.clock + math.min(passed, longest_gap())
  end
  state.time = run.now_ms
end

function run.wake(topic, message)
  run.wakes[topic] = message or ''
end

function run.wake_worker(worker)
  local others = run.wakes.cancelled
  if others == '' then
    return -- all are woken
  end
  run.wakes.cancelled = others and others .. ' ' .. worker or worker
end

function run.publish_wakes()
  local prefix = string.sub(keys.run, 1, -4) .. 'wake:'
  for topic, message in pairs(run.wakes) do
    redis.call('PUBLISH', prefix .. topic, message)
  end
end

-- Appends one event: the step that it records is committed with it.
function run.record(event)
  local state = run.state
  state.seq = state.seq + 1
  state.mark = run.mark
  event.seq, event.at_ms, event.mark = state.seq, run.now_ms, run.mark
  redis.call('XADD', keys.events, string.format('%d-0', state.seq), 'event', cmsgpack.pack(event))
  run.wake('events')
end

-- Every script that may write ends here, whether or not it recorded an event: the clock went on.
function run.save()
  if run.at_the_end then
    run.at_the_end()
  end
  redis.call('HSET', keys.run, 'state', cmsgpack.pack(run.state))
  run.publish_wakes()
end

function run.finish(body)
  run.save()
  return run.answer(body)
end
