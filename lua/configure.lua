#!lua
-- Changes the parts of a run's configuration that may change (PATCH).
--
-- args     changes: { lease_ms?, max_concurrency?, keep_batches? }, cleared: the names of those to be unset
-- body     configured, with config
-- event    run_changed, if anything differs
--
-- Safe to send twice: the second changes nothing.
--@include run

local stopped = open()
if stopped then
  return stopped
end
advance_clock()

local differs = false
local function change(field, value)
  differs = differs or config[field] ~= value
  config[field] = value
end
for field, value in pairs(args.changes) do
  change(field, value)
end
for _, field in ipairs(args.cleared) do
  change(field, nil)
end
if differs then
  state.oldest_kept = math.max(state.oldest_kept, state.next_buffer - config.keep_batches)
  redis.call('HSET', RUN, 'config', cmsgpack.pack(config))
  record({ type = 'run_changed', config = config, ids = {}, effects = {} })
  wake('admission')
end
return finish({ outcome = 'configured', config = config })
