#!lua
-- Layout 0 (nothing) to 1: the run's keys as the head of lua/prelude/run.lua lists them. They come into being empty, so
-- there is nothing to convert; the number says from now on how the keys are to be read.
--
-- KEYS     all keys of the run, as every script has them
-- reply    the layout that the run has afterwards
--
-- Safe to send twice: a run that has a layout keeps it.
local layout = redis.call('HGET', KEYS[1], 'layout')
if layout then
  return tonumber(layout)
end
redis.call('HSET', KEYS[1], 'layout', 1)
return 1
