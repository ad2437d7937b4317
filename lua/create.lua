#!lua
-- Creates a run, or shows the one that exists. A deleted run of that name left its seq, epoch and lineage: the new run goes
-- on from them, with the lineage raised.
--
-- args     creating = true, even_behind = true, config
-- body     created | exists, with config
-- event    run_created, if it was
--
-- Safe to send twice: the second finds the run.
--@include run
--@include weights

local stopped = run.open()
if stopped then
  return stopped
end
if run.state then
  return run.answer({ outcome = 'exists', config = run.config })
end

run.config = args.config
local first = run.config.initial_version
run.state = {
  policy_version = first,
  next_buffer = first,
  trainer_version = first,
  lineage = run.tombstone and run.tombstone.lineage or 0,
  epoch = run.tombstone and run.tombstone.epoch or 0,
  seq = run.tombstone and run.tombstone.seq or 0,
  clock = run.tombstone and run.tombstone.clock or 0,
  time = run.now_ms,
  created_at_ms = run.now_ms,
  buffers = {},
  generating = 0,
  oldest_kept = first,
  pruned = { buffer = first, slot = 0 },
  totals = { reserved = 0, occupied = 0, trained = 0, late = 0, adopted = 0, discarded = {} },
}
if run.config.prompt_queue then
  run.state.prompts = { fed = 0, returned = 0, filtered = 0, failed = 0, dropped = 0 }
end
for index = 1, run.config.max_staleness + 1 do
  run.state.buffers[index] = { 0, 0 }
end
if run.tombstone then
  weights.abandon(-1) -- all that there were before
  redis.call('PERSIST', keys.sessions)
  redis.call('PERSIST', keys.forget)
end
redis.call('HDEL', keys.run, 'tombstone')
redis.call('HSET', keys.run, 'config', cmsgpack.pack(run.config))
redis.call('HSET', keys.versions, first, cmsgpack.pack({ published_at_ms = run.now_ms }))
run.record({
  type = 'run_created',
  config = run.config,
  epoch = run.state.epoch > 0 and run.state.epoch or nil,
  lineage = run.state.lineage > 0 and run.state.lineage or nil,
  ids = {},
  effects = {},
})
return run.finish({ outcome = 'created', config = run.config })
