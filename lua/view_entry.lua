#!lua flags=no-writes
-- Shows one entry, with its slot and, once taken, when.
--
-- args     id
-- body     next_buffer, max_staleness, entry?, place?, taken_at_ms?
--@include run
--@include tables

local stopped = open()
if stopped then
  return stopped
end
open_tables()

local packed = redis.call('HGET', ENTRIES, args.id)
local entry = packed and cmsgpack.unpack(packed) or nil
local at, batch
if entry and entry.state == 'reserved' then
  at = place(reserved_position(args.id, entry.version))
elseif entry and entry.buffer then
  at = { buffer = entry.buffer, slot = entry.slot }
  batch = redis.call('HGET', BATCHES, entry.buffer)
end
return answer({
  next_buffer = state.next_buffer,
  max_staleness = ETA,
  entry = entry,
  place = at,
  taken_at_ms = batch and cmsgpack.unpack(batch).taken_at_ms or nil,
})
