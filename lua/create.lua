#!lua
-- Creates a run, or shows the one that exists. A deleted run of that name left its seq, epoch and lineage: the new run goes
-- on from them, with the lineage raised.
--
-- args     creating = true, config
-- body     created | exists, with config
-- event    run_created, if it was
--
-- Safe to send twice: the second finds the run.
--@include run

local stopped = open()
if stopped then
  return stopped
end
if state then
  return answer({ outcome = 'exists', config = config })
end

config = args.config
local first = config.initial_version
state = {
  policy_version = first,
  next_buffer = first,
  lineage = tombstone and tombstone.lineage + 1 or 0,
  epoch = tombstone and tombstone.epoch or 0,
  seq = tombstone and tombstone.seq or 0,
  clock = tombstone and tombstone.clock or 0,
  time = now_ms,
  created_at_ms = now_ms,
  buffers = {},
  oldest_kept = first,
  pruned = { buffer = first, slot = 0 },
  totals = { reserved = 0, occupied = 0, trained = 0, late = 0, discarded = {} },
}
for index = 1, config.max_staleness + 1 do
  state.buffers[index] = { 0, 0 }
end
redis.call('HDEL', RUN, 'tombstone')
redis.call('HSET', RUN, 'config', cmsgpack.pack(config))
redis.call('HSET', VERSIONS, first, cmsgpack.pack({ published_at_ms = now_ms }))
record({ type = 'run_created', config = config, ids = {}, effects = {} })
return finish({ outcome = 'created', config = config })
