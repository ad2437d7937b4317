#!lua
-- Deletes a run and leaves a tombstone: its seq, epoch and lineage, from which a new run of that name goes on.
--
-- args     (none)
-- body     deleted
--
-- Safe to send twice: a run that is deleted already stays so.
--@include run

local stopped = open()
if stopped and not tombstone then
  return stopped
end
if tombstone then
  return answer({ outcome = 'deleted' })
end
advance_clock()

tombstone = { seq = state.seq + 1, epoch = state.epoch, lineage = state.lineage, clock = state.clock, mark = args.mark }
redis.call('HDEL', RUN, 'config', 'state')
redis.call('HSET', RUN, 'tombstone', cmsgpack.pack(tombstone))
for index = 2, #KEYS do
  redis.call('UNLINK', KEYS[index])
end
state = nil
for _, topic in ipairs({ 'admission', 'batch', 'version', 'events', 'cancelled' }) do
  wake(topic)
end
publish_wakes()
return answer({ outcome = 'deleted' })
