#!lua
-- Heartbeat: renews the lease, records the version that the session says it holds, forgets acknowledged cancellations, and
-- tells those that are not. With `holding`, what the session was granted more than a lease ago and does not list is
-- discarded as `abandoned`; the list is held against the reservations from `holding_after` on, a page at a time.
--
-- args     worker, session?, version?, lineage?, acknowledged?, holding?, holding_after?
-- body     ledger_behind (a lineage that there is not), or cancelled: [{ id, reason, members? }],
--          known_version?, holding_next? (go on there), and what with_run adds
-- event    heartbeat, if the version is new, an acknowledgement met a cancellation, or something was abandoned
--
-- Safe to send twice: the second finds nothing left to do.
--@include run
--@include sessions
--@include tables
--@include entries
--@include moves
--@include figures
--@include prompts
--@include discarding
--@include groups
--@include weights

local PAGE = 200
local MOST_TOLD = 1000

local stopped = sessions.begin()
if stopped then
  return stopped
end

if weights.is_above(args) then
  return run.stop('ledger_behind')
end
-- Weights that there are not, or not any more, are not taken down: the answer tells the worker of newer ones.
local said
local lineage = weights.lineage_of(args, sessions.caller)
local is_known = args.version and args.version <= run.state.policy_version
if is_known and lineage and not weights.are_abandoned(args.version, lineage) then
  if args.version ~= weights.said_version(sessions.caller) then
    said = args.version
    run.wake('admission') -- a waiting Reserve of the session may speak of these weights
    weights.say(sessions.caller, said)
    sessions.save()
  end
end

local acknowledged = {}
for _, id in ipairs(args.acknowledged or {}) do
  if redis.call('ZREM', keys.cancelled, sessions.member(sessions.caller_key, id)) == 1 then
    acknowledged[#acknowledged + 1] = id
  end
end

local abandoned, holding_next = {}, nil
if args.holding then
  local listed = {}
  for _, id in ipairs(args.holding) do
    listed[id] = true
  end
  local low, high = sessions.range(sessions.caller_key)
  if args.holding_after then
    low = '(' .. sessions.member(sessions.caller_key, args.holding_after)
  end
  local missing = {}
  local page = redis.call('ZRANGE', keys.held, low, high, 'BYLEX', 'LIMIT', 0, PAGE)
  for index, member in ipairs(page) do
    local id = string.sub(member, #sessions.caller_key + 2)
    if not listed[id] and entries.load(id).granted_at + run.config.lease_ms < run.state.clock then
      missing[#missing + 1] = id
    end
    if #missing == sessions.STEP or index == PAGE then
      holding_next = id
      break
    end
  end
  abandoned = sessions.discard_all(missing, 'abandoned')
end

if said or #acknowledged > 0 or #abandoned > 0 then
  run.record({
    type = 'heartbeat',
    worker = args.worker,
    session = sessions.caller_token,
    version = said,
    lineage = said and lineage > 0 and lineage or nil,
    reason = #abandoned > 0 and 'abandoned' or nil,
    ids = abandoned,
    effects = tables.take_effects(),
    acknowledged = acknowledged,
  })
end

local cancelled = {}
local low, high = sessions.range(sessions.caller_key)
for index, member in ipairs(redis.call('ZRANGE', keys.cancelled, low, high, 'BYLEX', 'LIMIT', 0, MOST_TOLD)) do
  local id = string.sub(member, #sessions.caller_key + 2)
  cancelled[index] = groups.cancellation(id, entries.load(id))
end
local version = weights.said_version(sessions.caller)
return run.finish(sessions.with_run({ cancelled = cancelled, known_version = version, holding_next = holding_next }))
