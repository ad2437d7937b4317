#!lua
-- Changes the parts of a run's configuration that may change (PATCH).
--
-- args     changes: { lease_ms?, max_concurrency?, reservation_timeout_ms?, stuck_timeout_ms?, stuck_max_reserved?,
--          keep_batches? }, cleared: the names of those to be unset
-- body     configured, with config | too_few (candidates): max_concurrency does not let a group be admitted
-- event    run_changed, if anything differs
--
-- Safe to send twice: the second changes nothing.
--@include run
--@include batches

local stopped = run.open()
if stopped then
  return stopped
end
if run.is_below(args) then
  return run.stop('ledger_behind')
end
run.advance_clock()

local most = args.changes.max_concurrency
if most and most < run.config.group_candidates then
  return run.finish({ outcome = 'too_few', candidates = run.config.group_candidates })
end

local differs = false
local function change(field, value)
  differs = differs or run.config[field] ~= value
  run.config[field] = value
end
for field, value in pairs(args.changes) do
  change(field, value)
end
for _, field in ipairs(args.cleared) do
  change(field, nil)
end
if differs then
  batches.let_go()
  redis.call('HSET', keys.run, 'config', cmsgpack.pack(run.config))
  run.record({ type = 'run_changed', config = run.config, ids = {}, effects = {} })
  run.wake('admission')
end
return run.finish({ outcome = 'configured', config = run.config })
