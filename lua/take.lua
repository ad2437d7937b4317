#!lua
-- Take: the trainer is given the batch of trainer_version. At V that is buffer H, which becomes batch H if it is ready, or
-- the batch that was taken and whose successor is not published yet; below V, during a replay, a batch that is kept. Taken
-- entries stay where they are: that they are taken follows from their buffer. What a drained run has left over is a last,
-- shorter batch, or discarded.
--
-- args     seen?, epoch?, version? (the batch that the caller means)
-- body     taken       version, entries (how many), final, redelivered, replayed, lineage
--          not_ready   buffer_state?, occupied, needed, waiting_for_ms, finished
--          drained     call again: a step of what is left over was discarded
--          other_batch expected
-- event    take, when buffer H becomes a batch; deliver, when a batch that was taken before is given to this session first;
--          discard, of what is left over
--
-- Safe to send twice: until the next version is published, the same batch is given again.
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
trainer.calls()

local is_replayed, is_taken = version < state.policy_version, version < state.next_buffer
if not is_taken and not tables.is_ready(version) then
  local last_batch = tables.last_batch()
  if not last_batch then
    return trainer.waits()
  end
  if last_batch == 'discard' then
    return batches.discard_the_rest()
  end
end

local is_first = state.trainer.delivered ~= version
trainer.is_given()
local batch
if is_taken then
  batch = batches.load(version)
  if is_first then
    state.trainer.delivered = version
    run.record({ type = 'deliver', version = version, replayed = is_replayed or nil, ids = {}, effects = {} })
  end
else
  batches.complete()
  batch = batches.load(version)
  run.record({
    type = 'take',
    version = version,
    entries = batch.final and batch.entries or nil,
    final = batch.final,
    ids = {},
    effects = tables.take_effects(),
  })
end
return run.finish({
  outcome = 'taken',
  version = version,
  entries = batch.entries,
  final = batch.final or false,
  redelivered = is_taken and not (is_replayed and is_first),
  replayed = is_replayed,
  lineage = state.lineage,
})
