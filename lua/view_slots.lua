#!lua flags=no-writes
-- Shows who sits in which slot of the open buffers, at one moment. Its cost grows with the entries in them: it is for
-- looking.
--
-- args     (none)
-- body     config, state, occupied: [[id …] for each open buffer, in slot order], reserved: [{ id, version, buffer, slot }]
--@include run
--@include tables
--@include batches

local stopped = run.load()
if stopped then
  return stopped
end
tables.open()

local occupied = {}
for index, count in ipairs(run.state.buffers) do
  occupied[index] = batches.ids(run.state.next_buffer + index - 1, 0, count[1])
end

local reserved = {}
for version = math.max(tables.first_buffer() - tables.ETA, 0), run.state.policy_version do
  local base = tables.ring_base(version)
  local found = redis.call('ZRANGE', keys.reserved, base, string.format('(%d', base + tables.RING), 'BYSCORE', 'WITHSCORES')
  for index = 1, #found, 2 do
    local at = tables.place(found[index + 1] - base)
    reserved[#reserved + 1] = { id = found[index], version = version, buffer = at.buffer, slot = at.slot }
  end
end
return run.answer({ config = run.config, state = run.state, occupied = occupied, reserved = reserved })
