#!lua flags=no-writes
-- Shows one entry, with its slot and, once taken, when.
--
-- args     id
-- body     next_buffer, streamed, max_staleness, entry?, place?, taken_at_ms?
--@include run
--@include tables
--@include entries

local stopped = run.load()
if stopped then
  return stopped
end
tables.open()

local packed = redis.call('HGET', keys.entries, args.id)
local entry = packed and cmsgpack.unpack(packed) or nil
local at, batch
if entry and entry.state == 'reserved' then
  at = tables.place(tables.reserved_position(args.id, entry.version))
elseif entry and entry.buffer then
  at = { buffer = entry.buffer, slot = entry.slot }
  batch = redis.call('HGET', keys.batches, entry.buffer)
end
return run.answer({
  next_buffer = run.state.next_buffer,
  streamed = tables.streamed(),
  max_staleness = tables.ETA,
  entry = entry,
  place = at,
  taken_at_ms = batch and cmsgpack.unpack(batch).taken_at_ms or nil,
})
