#!lua flags=no-writes
-- Shows what became of the entries, by length, as far as it is counted, and where the rest is: the batches that are taken
-- and not forgotten yet, whose entries the caller counts.
--
-- args     (none)
-- body     figures: [[field, sums]] (see figures.lua), admitted (how many in all), lineage, pruned { buffer, slot }: the
--          first entry that is not counted; gaps: [[first, past]], next_buffer, streamed: how many entries of that buffer
--          are taken already
--@include run

local stopped = run.load()
if stopped then
  return stopped
end

local state = run.state
local packed = redis.call('HGETALL', keys.figures)
local figures = {}
for index = 1, #packed, 2 do
  figures[#figures + 1] = { packed[index], cmsgpack.unpack(packed[index + 1]) }
end
return run.answer({
  figures = figures,
  admitted = state.totals.reserved + state.totals.late,
  lineage = state.lineage,
  pruned = state.pruned,
  gaps = state.gaps or {},
  next_buffer = state.next_buffer,
  streamed = state.streamed or 0,
})
