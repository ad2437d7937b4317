#!lua
-- Layout 1 to 2: the state tells the version that the trainer stands at, which during a replay is not the policy version, and
-- the batch that it was given: one that is in training may be published.
--
-- KEYS     all keys of the run, as every script has them
-- reply    the layout that the run has afterwards
--
-- Safe to send twice: a run that has this layout, or a newer one, keeps it.
local layout = tonumber(redis.call('HGET', KEYS[1], 'layout'))
if layout >= 2 then
  return layout
end
local packed = redis.call('HGET', KEYS[1], 'state')
if packed then
  local state = cmsgpack.unpack(packed)
  state.trainer_version = state.policy_version
  if state.trainer and state.policy_version < state.next_buffer then
    state.trainer.delivered = state.policy_version
  end
  redis.call('HSET', KEYS[1], 'state', cmsgpack.pack(state))
end
redis.call('HSET', KEYS[1], 'layout', 2)
return 2
