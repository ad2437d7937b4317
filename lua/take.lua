#!lua
-- Take: buffer H becomes batch H, if it is ready and the trainer stands at V. Taken entries stay where they are: that they
-- are taken follows from their buffer.
--
-- args     version? (the batch that the caller means), waiting (a trainer waits for the answer)
-- body     taken       version, entries (how many), redelivered, next_buffer
--          not_ready   buffer_state?, occupied, needed, waiting_for_ms
--          other_batch expected
-- event    take, the first time
--
-- Safe to send twice: until the next version is published, the same batch is taken again.
--@include run
--@include sessions
--@include tables
--@include entries
--@include moves
--@include discarding

local stopped = sessions.begin()
if stopped then
  return stopped
end

local MINUTE_MS = 60000

local busy = run.state.next_buffer > run.state.policy_version
if args.version and args.version ~= run.state.policy_version then
  return sessions.refuse('other_batch', { expected = run.state.policy_version })
end

-- The trainer waits from its first call that found nothing until one is answered, or until none called for a minute.
local trainer = run.state.trainer or {}
run.state.trainer = trainer
if trainer.waiting_since and run.state.clock - trainer.last_call > MINUTE_MS then
  trainer.waiting_since, trainer.waiting_since_at_ms = nil, nil
end
trainer.last_call, trainer.last_call_at_ms = run.state.clock, run.now_ms

if busy or tables.is_takeable() then
  trainer.waiting_since, trainer.waiting_since_at_ms = nil, nil
  local version = run.state.policy_version
  if not busy then
    for slot = tables.S - tables.counts(version)[2], tables.S - 1 do
      local reserved = tables.reserved_at(version * tables.S + slot)
      entries.drop_reserved(reserved.id, entries.load(reserved.id), 'surplus')
    end
    table.remove(run.state.buffers, 1)
    run.state.next_buffer = version + 1
    entries.discard_surplus()
    run.state.totals.trained = run.state.totals.trained + tables.B
    run.state.oldest_kept = math.max(run.state.oldest_kept, run.state.next_buffer - run.config.keep_batches)
    trainer.training_since_at_ms = run.now_ms
    redis.call('HSET', keys.batches, version, cmsgpack.pack({ entries = tables.B, taken_at_ms = run.now_ms }))
    run.record({ type = 'take', version = version, ids = {}, effects = tables.take_effects() })
  end
  return run.finish({ outcome = 'taken', version = version, entries = tables.B, redelivered = busy })
end

if not trainer.waiting_since then
  trainer.waiting_since, trainer.waiting_since_at_ms = run.state.clock, run.now_ms
end
return run.finish({
  outcome = 'not_ready',
  buffer_state = tables.buffer_state(run.state.next_buffer),
  occupied = tables.counts(run.state.next_buffer)[1],
  needed = tables.B,
  waiting_for_ms = run.state.clock - trainer.waiting_since,
})
