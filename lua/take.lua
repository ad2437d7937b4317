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
--@include tables
--@include entries
--@include sessions

local stopped = open() or enter()
if stopped then
  return stopped
end

local MINUTE_MS = 60000

local busy = state.next_buffer > state.policy_version
if args.version and args.version ~= state.policy_version then
  return refuse('other_batch', { expected = state.policy_version })
end

-- The trainer waits from its first call that found nothing until one is answered, or until none called for a minute.
local trainer = state.trainer or {}
state.trainer = trainer
if trainer.waiting_since and state.clock - trainer.last_call > MINUTE_MS then
  trainer.waiting_since, trainer.waiting_since_at_ms = nil, nil
end
trainer.last_call, trainer.last_call_at_ms = state.clock, now_ms

if busy or is_takeable() then
  trainer.waiting_since, trainer.waiting_since_at_ms = nil, nil
  local version = state.policy_version
  if not busy then
    for slot = S - counts(version)[2], S - 1 do
      local reserved = reserved_at(version * S + slot)
      drop_reserved(reserved.id, load_entry(reserved.id), 'surplus')
    end
    table.remove(state.buffers, 1)
    state.next_buffer = version + 1
    discard_surplus()
    state.totals.trained = state.totals.trained + B
    state.oldest_kept = math.max(state.oldest_kept, state.next_buffer - config.keep_batches)
    trainer.training_since_at_ms = now_ms
    redis.call('HSET', BATCHES, version, cmsgpack.pack({ entries = B, taken_at_ms = now_ms }))
    record({ type = 'take', version = version, ids = {}, effects = take_effects() })
  end
  return finish({ outcome = 'taken', version = version, entries = B, redelivered = busy })
end

if not trainer.waiting_since then
  trainer.waiting_since, trainer.waiting_since_at_ms = state.clock, now_ms
end
return finish({
  outcome = 'not_ready',
  buffer_state = buffer_state(state.next_buffer),
  occupied = counts(state.next_buffer)[1],
  needed = B,
  waiting_for_ms = state.clock - trainer.waiting_since,
})
