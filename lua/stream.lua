#!lua
-- Stream: the trainer is given a piece of the batch of trainer_version: of what is taken of it, if that is more than the
-- trainer has, and else of what has finished in buffer H since, which is taken by it. Taken entries stay where they are, in
-- the front-most slots of their buffer; when they are as many as a batch, or all that a drained run has left over, the
-- buffer becomes a batch.
--
-- args     seen?, epoch?, version? (the batch that the caller means), from (how many entries of it the caller has),
--          min_entries (at least 1), max_entries? (at least 1)
-- body     piece       version, offset, entries (how many), complete, final, redelivered, replayed, buffer_state, lineage
--          not_ready   buffer_state, occupied, needed, waiting_for_ms, finished
--          drained     call again: a step of what is left over was discarded
--          other_batch expected
--          beyond_taken taken
-- event    stream, when more is taken; deliver, when the end of a batch that was taken before is given to this session
--          first; discard, of what is left over
--
-- Safe to send twice: what the first took is taken, and `from` says that the caller does not have it.
--@include run
--@include sessions
--@include tables
--@include entries
--@include moves
--@include figures
--@include prompts
--@include discarding
--@include groups
--@include batches
--@include trainer
--@include taking

local stopped = sessions.begin() or trainer.refuse()
if stopped then
  return stopped
end

local state = run.state
local version = state.trainer_version
if args.version and args.version ~= version then
  return sessions.refuse('other_batch', { expected = version })
end
local is_replayed, is_batch = version < state.policy_version, version < state.next_buffer
local taken = is_batch and batches.load(version).entries or tables.streamed()
if args.from > taken then
  return sessions.refuse('beyond_taken', { taken = taken })
end
trainer.calls()

local function piece(count, fields)
  trainer.is_given()
  fields.outcome, fields.version, fields.offset, fields.entries = 'piece', version, args.from, count
  fields.final = fields.complete and batches.load(version).final or false
  fields.replayed, fields.lineage = is_replayed, state.lineage
  fields.buffer_state = tables.buffer_state(version)
  return run.finish(fields)
end

local most = args.max_entries or math.huge
if is_batch then
  local count = math.min(taken - args.from, most)
  local is_complete, is_first = args.from + count == taken, state.trainer.delivered ~= version
  if is_complete and is_first then
    state.trainer.delivered = version
    local event = { type = 'deliver', version = version, offset = args.from, ids = {}, effects = {} }
    event.replayed = is_replayed or nil
    run.record(event)
  end
  return piece(count, { complete = is_complete, redelivered = not (is_replayed and is_first) })
end
if args.from < taken then
  return piece(math.min(taken - args.from, most), { complete = false, redelivered = true })
end

local finished_since = tables.counts(version)[1] - taken
local rest = tables.B - taken -- what the batch still lacks
local last_batch = tables.last_batch()
if last_batch == 'discard' then
  return batches.discard_the_rest()
elseif last_batch then
  rest = finished_since
else
  local least = math.min(args.min_entries, rest)
  if finished_since < least then
    return trainer.waits(taken + least)
  end
end
local count = math.min(finished_since, most)
local is_complete = count == rest
batches.take_piece(count)
if is_complete then
  batches.complete()
end
run.record({
  type = 'stream',
  version = version,
  offset = taken,
  entries = count,
  final = is_complete and batches.load(version).final or nil,
  ids = {},
  effects = tables.take_effects(),
})
return piece(count, { complete = is_complete, redelivered = false })
