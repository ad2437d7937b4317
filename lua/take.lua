#!lua
-- Take: the trainer is given the batch of trainer_version. At V that is buffer H, which becomes batch H if it is ready, or
-- the batch that was taken and whose successor is not published yet; below V, during a replay, a batch that is kept. Taken
-- entries stay where they are: that they are taken follows from their buffer.
--
-- args     seen?, epoch?, version? (the batch that the caller means)
-- body     taken       version, entries (how many), redelivered, replayed, lineage
--          not_ready   buffer_state?, occupied, needed, waiting_for_ms
--          other_batch expected
-- event    take, when buffer H becomes a batch; deliver, when a batch that was taken before is given to this session first
--
-- Safe to send twice: until the next version is published, the same batch is given again.
--@include run
--@include sessions
--@include tables
--@include entries
--@include moves
--@include prompts
--@include discarding
--@include batches
--@include trainer

local stopped = sessions.begin() or trainer.refuse()
if stopped then
  return stopped
end

local MINUTE_MS = 60000

local state = run.state
local version = state.trainer_version
if args.version and args.version ~= version then
  return sessions.refuse('other_batch', { expected = version })
end

-- The trainer waits from its first call that found nothing until one is answered, or until none called for a minute.
local times = state.trainer
if times.waiting_since and state.clock - times.last_call > MINUTE_MS then
  times.waiting_since, times.waiting_since_at_ms = nil, nil
end
times.last_call, times.last_call_at_ms = state.clock, run.now_ms

local is_replayed, is_taken = version < state.policy_version, version < state.next_buffer
if not is_taken and not tables.is_ready(version) then
  if not times.waiting_since then
    times.waiting_since, times.waiting_since_at_ms = state.clock, run.now_ms
  end
  return run.finish({
    outcome = 'not_ready',
    buffer_state = tables.buffer_state(version),
    occupied = tables.counts(version)[1],
    needed = tables.B,
    waiting_for_ms = state.clock - times.waiting_since,
  })
end

local function take()
  for slot = tables.S - tables.counts(version)[2], tables.S - 1 do
    local reserved = tables.reserved_at(version * tables.S + slot)
    entries.drop_reserved(reserved.id, entries.load(reserved.id), 'surplus')
  end
  table.remove(state.buffers, 1)
  state.next_buffer = version + 1
  entries.discard_surplus()
  state.totals.trained = state.totals.trained + tables.B
  batches.let_go()
  redis.call('HSET', keys.batches, version, cmsgpack.pack({ entries = tables.B, taken_at_ms = run.now_ms }))
  run.record({ type = 'take', version = version, ids = {}, effects = tables.take_effects() })
end

local is_first = times.delivered ~= version
times.delivered = version
times.waiting_since, times.waiting_since_at_ms = nil, nil
if is_first then
  times.training_since_at_ms = run.now_ms
end
if not is_taken then
  take()
elseif is_first then
  run.record({ type = 'deliver', version = version, replayed = is_replayed or nil, ids = {}, effects = {} })
end
return run.finish({
  outcome = 'taken',
  version = version,
  entries = batches.load(version).entries,
  redelivered = is_taken and not (is_replayed and is_first),
  replayed = is_replayed,
  lineage = state.lineage,
})
