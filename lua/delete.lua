#!lua flags=allow-oom
-- Deletes a run and leaves a tombstone: its seq, epoch and lineage, from which a new run of that name goes on. For a day it
-- leaves the tokens of the workers' sessions, too: whoever calls with one of them still has the weights of the deleted run.
--
-- args     even_behind = true
-- body     deleted
--
-- Safe to send twice: a run that is deleted already stays so.
--@include run
--@include sessions

local stopped = run.open()
if stopped and not run.tombstone then
  return stopped
end
if run.tombstone then
  return run.answer({ outcome = 'deleted' })
end
run.advance_clock()

-- A run that was behind is not after this: its name goes on above all that was seen.
local is_behind, state = run.is_behind(), run.state
local seen = is_behind and state.behind or state
run.tombstone = {
  seq = math.max(state.seq, seen.seq) + 1,
  epoch = math.max(state.epoch, seen.epoch),
  lineage = math.max(state.lineage, seen.lineage),
  clock = state.clock,
  mark = args.mark,
}
local known = redis.call('HGETALL', keys.sessions)
redis.call('HDEL', keys.run, 'config', 'state')
redis.call('HSET', keys.run, 'tombstone', cmsgpack.pack(run.tombstone))
for index = 2, #KEYS do
  redis.call('UNLINK', KEYS[index])
end
for index = 1, #known, 2 do
  local key, session = known[index], cmsgpack.unpack(known[index + 1])
  -- A worker that sends no token cannot be told from its successor.
  if string.sub(key, -1) ~= '\0' then
    sessions.save_as(key, {
      deleted = true,
      ended = session.ended,
      lineage = session.lineage,
      heartbeat_at_ms = run.now_ms,
    })
    redis.call('ZADD', keys.forget, state.clock + sessions.DAY_MS, 'session:' .. key)
  end
end
for _, key in ipairs({ keys.sessions, keys.forget }) do
  redis.call('PEXPIRE', key, sessions.DAY_MS)
end
run.state = nil
for _, topic in ipairs({ 'admission', 'batch', 'version', 'events', 'cancelled' }) do
  run.wake(topic)
end
run.publish_wakes()
return run.answer({ outcome = 'deleted' })
