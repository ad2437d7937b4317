#!lua
-- Resume: opens a trainer session that goes on from a checkpoint.
--
-- args     even_behind = true, seen?, trainer, session, resume_from?, mode ("replay" or "rewind"), force
-- body     resumed     epoch, trainer_version, policy_version, lineage, weights?
--          fenced      a newer session opened since this one
--          resume_from_missing
--          batch_pruned  version (the first that is not kept)
--          ledger_behind policy_version
-- event    trainer_opened, with everything that was placed anew or discarded
--
-- Safe to send twice: the session's token tells a repetition, which is given the first answer.
--@include run
--@include sessions
--@include tables
--@include entries
--@include moves
--@include figures
--@include prompts
--@include discarding
--@include groups
--@include finishing
--@include batches
--@include trainer
--@include weights
--@include replacing

local stopped = run.open()
if stopped then
  return stopped
end
run.advance_clock()
tables.open()

local state = run.state
local before = state.trainer or {}
local token_field = '\0' .. args.session
local is_behind = run.is_behind() or run.is_below(args)
-- What this session was answered before the database lost writes is no answer any more.
if before.session == args.session and not is_behind then
  return run.answer(before.answer)
end
if redis.call('HEXISTS', keys.requests, token_field) == 1 then
  return run.answer({ outcome = 'fenced' })
end

local latest, checkpoint = state.policy_version, args.resume_from
if not checkpoint then
  local last_rewind = state.rewinds and state.rewinds[#state.rewinds]
  local is_other_way = last_rewind and last_rewind[2] >= 0 -- below that goes only a run that is created again
  if latest ~= run.config.initial_version or is_other_way then
    return run.answer({ outcome = 'resume_from_missing' })
  end
  checkpoint = latest
end

-- What the checkpoint calls for (Resume).
local kind
if checkpoint == latest then
  kind = 'go_on'
elseif checkpoint == latest + 1 and state.next_buffer == checkpoint then
  kind = 'publish'
elseif checkpoint < latest then
  kind = args.mode
  local missing = batches.first_missing(checkpoint, latest)
  if missing and not (kind == 'rewind' and args.force) then
    return run.answer({ outcome = 'batch_pruned', version = missing })
  end
elseif args.force then
  kind = 'jump'
else
  return run.answer({ outcome = 'ledger_behind', policy_version = latest })
end

-- From here on nothing is refused.
local raised_from
if is_behind then
  local seen = state.behind or run.at()
  local seen_seq = math.max(seen.seq, args.seen or 0)
  if seen_seq > state.seq then
    raised_from, state.seq = state.seq, seen_seq
  end
  state.epoch, state.lineage = math.max(state.epoch, seen.epoch), math.max(state.lineage, seen.lineage)
  state.behind = nil
end
state.epoch = state.epoch + 1

-- The window opens at the checkpoint: empty tables.
local function open_window()
  state.policy_version, state.trainer_version, state.next_buffer = checkpoint, checkpoint, checkpoint
  state.streamed = nil
  for index = 1, tables.ETA + 1 do
    state.buffers[index] = { 0, 0 }
  end
  if redis.call('HEXISTS', keys.versions, checkpoint) == 0 then
    redis.call('HSET', keys.versions, checkpoint, cmsgpack.pack({ published_at_ms = run.now_ms }))
  end
end

local function rewind()
  tables.take_out(checkpoint, 0)
  local function forget_version(version)
    redis.call('HDEL', keys.versions, version)
  end
  batches.each(math.max(checkpoint + 1, state.pruned.buffer), latest + 1, forget_version)
  local gaps = {}
  for _, gap in ipairs(state.gaps or {}) do
    if gap[1] < checkpoint then
      gaps[#gaps + 1] = { gap[1], math.min(gap[2], checkpoint) }
    elseif gap[1] > checkpoint then
      forget_version(gap[1]) -- it was the latest when the gap began
    end
  end
  state.gaps = #gaps > 0 and gaps or nil
  state.oldest_kept = math.min(state.oldest_kept, checkpoint)
  if state.pruned.buffer >= checkpoint then
    state.pruned = { buffer = checkpoint, slot = 0 }
  end
  weights.abandon(checkpoint)
  open_window()
  return tables.lay_out(function(entry)
    return entries.newest(entry) > checkpoint and 'rewound'
  end)
end

local function jump()
  tables.take_out(state.next_buffer, tables.let_go_of_pieces())
  state.gaps = state.gaps or {}
  table.insert(state.gaps, { state.next_buffer, checkpoint })
  weights.abandon(checkpoint)
  open_window()
  return tables.lay_out(function(entry)
    return entry.version + tables.ETA < checkpoint and 'too_stale'
  end)
end

local effects = {}
if kind == 'rewind' then
  effects = rewind()
elseif kind == 'jump' then
  effects = jump()
else
  if kind == 'publish' then
    trainer.advance(checkpoint)
  end
  state.trainer_version = checkpoint
  if is_behind then
    weights.abandon(state.policy_version)
  end
end
batches.let_go()

local packed = redis.call('HGET', keys.versions, state.policy_version)
local answer = {
  outcome = 'resumed',
  epoch = state.epoch,
  trainer_version = state.trainer_version,
  policy_version = state.policy_version,
  lineage = state.lineage,
  weights = packed and cmsgpack.unpack(packed).weights,
}
if before.session and before.session ~= args.session then
  local earlier = '\0' .. before.session
  redis.call('HSET', keys.requests, earlier, '')
  redis.call('ZADD', keys.forget, state.clock + sessions.DAY_MS, 'trainer:' .. earlier)
end
state.trainer = {
  name = args.trainer,
  session = args.session,
  epoch = state.epoch,
  answer = answer,
  last_call = state.clock,
  last_call_at_ms = run.now_ms,
}
run.record({
  type = 'trainer_opened',
  trainer = args.trainer,
  session = args.session,
  epoch = state.epoch,
  lineage = state.lineage > 0 and state.lineage or nil,
  resumed_from = checkpoint,
  mode = args.mode,
  force = args.force or nil,
  policy_version = state.policy_version,
  behind = is_behind or nil,
  raised_from = raised_from,
  ids = {},
  effects = effects,
})
if is_behind then
  -- No server that acknowledged what is lost need find that out again.
  state.settled, run.compared = state.seq, true
end
for _, topic in ipairs({ 'admission', 'batch', 'version' }) do
  run.wake(topic)
end
tables.wake()
return run.finish(answer)
