#!lua
-- Heartbeat: renews the lease, records the version that the session says it holds, forgets acknowledged cancellations, and
-- tells those that are not. With `holding`, what the session was granted more than a lease ago and does not list is
-- discarded as `abandoned`; the list is held against the reservations from `holding_after` on, a page at a time.
--
-- args     worker, session?, version?, acknowledged?, holding?, holding_after?
-- body     cancelled: [{ id, reason }], known_version?, holding_next? (go on there), and what with_run adds
-- event    heartbeat, if the version is new, an acknowledgement met a cancellation, or something was abandoned
--
-- Safe to send twice: the second finds nothing left to do.
--@include run
--@include tables
--@include entries
--@include sessions

local PAGE = 200
local MOST_TOLD = 1000

local stopped = open() or enter()
if stopped then
  return stopped
end

local said
if args.version and args.version <= state.policy_version and args.version ~= session.version then
  said = args.version
  session.version = said
  save_session()
end

local acknowledged = {}
for _, id in ipairs(args.acknowledged or {}) do
  if redis.call('ZREM', CANCELLED, session_member(session_name, id)) == 1 then
    acknowledged[#acknowledged + 1] = id
  end
end

local abandoned, holding_next = {}, nil
if args.holding then
  local listed = {}
  for _, id in ipairs(args.holding) do
    listed[id] = true
  end
  local low, high = session_range(session_name)
  if args.holding_after then
    low = '(' .. session_member(session_name, args.holding_after)
  end
  local missing = {}
  local page = redis.call('ZRANGE', HELD, low, high, 'BYLEX', 'LIMIT', 0, PAGE)
  for index, member in ipairs(page) do
    local id = string.sub(member, #session_name + 2)
    if not listed[id] and load_entry(id).granted_at + config.lease_ms < state.clock then
      missing[#missing + 1] = id
    end
    if #missing == STEP or index == PAGE then
      holding_next = id
      break
    end
  end
  abandoned = discard_all(missing, 'abandoned')
end

if said or #acknowledged > 0 or #abandoned > 0 then
  record({
    type = 'heartbeat',
    worker = args.worker,
    session = string.sub(session_name, #args.worker + 2),
    version = said,
    reason = #abandoned > 0 and 'abandoned' or nil,
    ids = abandoned,
    effects = take_effects(),
    acknowledged = acknowledged,
  })
end

local cancelled = {}
local low, high = session_range(session_name)
for index, member in ipairs(redis.call('ZRANGE', CANCELLED, low, high, 'BYLEX', 'LIMIT', 0, MOST_TOLD)) do
  local id = string.sub(member, #session_name + 2)
  local entry = load_entry(id)
  cancelled[index] = { id = id, reason = entry and entry.reason or 'abandoned' }
end
return finish(with_run({ cancelled = cancelled, known_version = session.version, holding_next = holding_next }))
