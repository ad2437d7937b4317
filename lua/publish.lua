#!lua
-- Publish: version V + 1, once batch V was wholly taken; one buffer opens. A version that is published already stays, and
-- gets the reference to its weights if it has none yet.
--
-- args     version, weights?
-- body     published   policy_version, trainer_version, lineage
--          publish_out_of_order  expected, taken (whether batch V was taken)
-- event    publish, if the version or its reference is new
--
-- Safe to send twice: the second finds the version published.
--@include run
--@include sessions
--@include tables

local stopped = sessions.begin()
if stopped then
  return stopped
end

local version = args.version
local taken = run.state.next_buffer > run.state.policy_version

local function published()
  return run.finish({
    outcome = 'published',
    policy_version = run.state.policy_version,
    trainer_version = run.state.policy_version,
    lineage = run.state.lineage,
  })
end

if version <= run.state.policy_version then
  local packed = redis.call('HGET', keys.versions, version)
  local known = packed and cmsgpack.unpack(packed)
  if known and not known.weights and args.weights then
    known.weights = args.weights
    redis.call('HSET', keys.versions, version, cmsgpack.pack(known))
    run.record({ type = 'publish', version = version, ids = {}, effects = {} })
    run.wake('version')
  end
  return published()
end
if version ~= run.state.policy_version + 1 or not taken then
  return sessions.refuse('publish_out_of_order', { expected = run.state.policy_version + 1, taken = taken })
end

run.state.policy_version = version
run.state.buffers[#run.state.buffers + 1] = { 0, 0 }
run.state.trainer = run.state.trainer or {}
run.state.trainer.training_since_at_ms = nil
run.state.trainer.last_call, run.state.trainer.last_call_at_ms = run.state.clock, run.now_ms
redis.call('HSET', keys.versions, version, cmsgpack.pack({ weights = args.weights, published_at_ms = run.now_ms }))
run.record({ type = 'publish', version = version, ids = {}, effects = {} })
run.wake('version')
run.wake('admission')
tables.wake()
return published()
