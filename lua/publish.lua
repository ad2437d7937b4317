#!lua
-- Publish: the version after trainer_version, once its batch was delivered whole to this trainer session. At V that is V +
-- 1: one buffer opens. During a replay only trainer_version goes on. A version that the trainer is past already stays, and
-- gets the reference to its weights if it has none yet.
--
-- args     seen?, epoch?, version, weights?
-- body     published   policy_version, trainer_version, lineage
--          publish_out_of_order  expected, taken (whether its batch was), delivered (to this session)
-- event    publish, if trainer_version goes on or the reference is new
--
-- Safe to send twice: the second finds the version published.
--@include run
--@include sessions
--@include tables
--@include batches
--@include trainer

local stopped = sessions.begin() or trainer.refuse()
if stopped then
  return stopped
end

local state, version = run.state, args.version

local function published()
  return run.finish({
    outcome = 'published',
    policy_version = state.policy_version,
    trainer_version = state.trainer_version,
    lineage = state.lineage,
  })
end

-- Gives a version that has none its reference. Returns whether it did.
local function refer()
  local packed = redis.call('HGET', keys.versions, version)
  local known = packed and cmsgpack.unpack(packed)
  if not known or known.weights or not args.weights then
    return false
  end
  known.weights = args.weights
  redis.call('HSET', keys.versions, version, cmsgpack.pack(known))
  run.wake('version')
  return true
end

local function record()
  run.record({ type = 'publish', version = version, ids = {}, effects = {} })
end

if version <= state.trainer_version then
  if refer() then
    record()
  end
  return published()
end
local expected = state.trainer_version + 1
local is_taken = state.trainer_version < state.next_buffer
local is_delivered = state.trainer.delivered == state.trainer_version
if version ~= expected or not is_taken or not is_delivered then
  local fields = { expected = expected, taken = is_taken, delivered = is_delivered }
  return sessions.refuse('publish_out_of_order', fields)
end

local times = state.trainer
times.training_since_at_ms = nil
times.last_call, times.last_call_at_ms = state.clock, run.now_ms
if version <= state.policy_version then
  state.trainer_version = version
  refer()
  tables.wake()
else
  trainer.advance(version, args.weights)
end
batches.let_go()
record()
return published()
