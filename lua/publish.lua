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
--@include tables
--@include entries
--@include sessions

local stopped = open() or enter()
if stopped then
  return stopped
end

local version = args.version
local taken = state.next_buffer > state.policy_version

local function published()
  return finish({
    outcome = 'published',
    policy_version = state.policy_version,
    trainer_version = state.policy_version,
    lineage = state.lineage,
  })
end

if version <= state.policy_version then
  local packed = redis.call('HGET', VERSIONS, version)
  local known = packed and cmsgpack.unpack(packed)
  if known and not known.weights and args.weights then
    known.weights = args.weights
    redis.call('HSET', VERSIONS, version, cmsgpack.pack(known))
    record({ type = 'publish', version = version, ids = {}, effects = {} })
    wake('version')
  end
  return published()
end
if version ~= state.policy_version + 1 or not taken then
  return refuse('publish_out_of_order', { expected = state.policy_version + 1, taken = taken })
end

state.policy_version = version
state.buffers[#state.buffers + 1] = { 0, 0 }
state.trainer = state.trainer or {}
state.trainer.training_since_at_ms = nil
state.trainer.last_call, state.trainer.last_call_at_ms = state.clock, now_ms
redis.call('HSET', VERSIONS, version, cmsgpack.pack({ weights = args.weights, published_at_ms = now_ms }))
record({ type = 'publish', version = version, ids = {}, effects = {} })
wake('version')
wake('admission')
wake_for_tables()
return published()
