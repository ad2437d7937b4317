#!lua
-- Layout 2 to 3: the configuration has groups, time-outs and a prompt queue, by default none of them; `ages` knows since when
-- each reservation has been with its holder, and the state how many trajectories are generating.
--
-- KEYS     all keys of the run, as every script has them
-- reply    the layout that the run has afterwards
--
-- Safe to send twice: a run that has this layout, or a newer one, keeps it.
local layout = tonumber(redis.call('HGET', KEYS[1], 'layout'))
if layout >= 3 then
  return layout
end
local packed = redis.call('HGET', KEYS[1], 'config')
if packed then
  local config = cmsgpack.unpack(packed)
  local defaults = {
    group_size = 1,
    group_candidates = 1,
    auto_occupy = true,
    drop_zero_variance = false,
    adopt_groups = false,
    prompt_queue = false,
    order = 'fed',
    order_window = config.batch_size,
    max_attempts = 3,
    drop_on = {},
    final_batch = 'short',
  }
  for field, value in pairs(defaults) do
    config[field] = value
  end
  redis.call('HSET', KEYS[1], 'config', cmsgpack.pack(config))
  for _, id in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    local entry = cmsgpack.unpack(redis.call('HGET', KEYS[2], id))
    redis.call('ZADD', KEYS[17], entry.granted_at, id)
  end
  local state = cmsgpack.unpack(redis.call('HGET', KEYS[1], 'state'))
  state.generating = redis.call('ZCARD', KEYS[3])
  state.totals.adopted = 0
  redis.call('HSET', KEYS[1], 'state', cmsgpack.pack(state))
end
redis.call('HSET', KEYS[1], 'layout', 3)
return 3
