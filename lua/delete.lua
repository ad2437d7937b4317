#!lua
-- Deletes a run and leaves a tombstone: its seq, epoch and lineage, from which a new run of that name goes on.
--
-- args     (none)
-- body     deleted
--
-- Safe to send twice: a run that is deleted already stays so.
--@include run

local stopped = run.open()
if stopped and not run.tombstone then
  return stopped
end
if run.tombstone then
  return run.answer({ outcome = 'deleted' })
end
run.advance_clock()

local state = run.state
run.tombstone =
  { seq = state.seq + 1, epoch = state.epoch, lineage = state.lineage, clock = state.clock, mark = args.mark }
redis.call('HDEL', keys.run, 'config', 'state')
redis.call('HSET', keys.run, 'tombstone', cmsgpack.pack(run.tombstone))
for index = 2, #KEYS do
  redis.call('UNLINK', KEYS[index])
end
run.state = nil
for _, topic in ipairs({ 'admission', 'batch', 'version', 'events', 'cancelled' }) do
  run.wake(topic)
end
run.publish_wakes()
return run.answer({ outcome = 'deleted' })
