-- Groups (protocol.md, Groups): the members of an entry, and the groups that nobody holds (Adoption).
--
-- An entry of a run with groups has `complete` and `failed`, how many of its candidates are, and `marks`, a letter for each:
-- '-' not reported, 'c' complete, 'f' failed. So most questions are answered by the entry alone, and `members`, which holds
-- what each left, is only written to. From the complete ones also stand in the entry: rewarded, reward_sum, first_reward and
-- unequal, counted and token_sum; and with_payload, how many members left one.
groups.GONE = { zero_variance = true, group_failed = true } -- reasons after which a member is not counted, and told so
groups.ENDS_OF_A_SESSION = { lease_expired = true, worker_restarted = true, abandoned = true }

function groups.has()
  return run.config.group_candidates > 1
end

function groups.begin(entry)
  entry.complete, entry.failed = 0, 0
  entry.marks = string.rep('-', run.config.group_candidates)
end

function groups.field(id, index)
  return string.format('%s:%d', id, index)
end

function groups.load(id, index)
  local packed = redis.call('HGET', keys.members, groups.field(id, index))
  return packed and cmsgpack.unpack(packed)
end

function groups.save(id, index, member)
  redis.call('HSET', keys.members, groups.field(id, index), cmsgpack.pack(member))
end

function groups.is_filled(entry)
  return entry.complete == run.config.group_size
end

function groups.cannot_be_filled(entry)
  return entry.failed > run.config.group_candidates - run.config.group_size
end

function groups.is_reported(entry, index)
  return string.sub(entry.marks, index + 1, index + 1) ~= '-'
end

-- The candidates with a mark.
function groups.indexes(entry, mark)
  local indexes = {}
  local at = string.find(entry.marks, mark, 1, true)
  while at do
    indexes[#indexes + 1] = at - 1
    at = string.find(entry.marks, mark, at + 1, true)
  end
  return indexes
end

-- Whether some candidates may still be generating, whatever became of the group.
function groups.has_rest(entry)
  return entry.complete + entry.failed < run.config.group_candidates
end

-- What a call may not say of an entry at all, by the shape of the run: the word for it, or nil.
function groups.unfit(index)
  if groups.has() then
    return not index and 'member_missing' or index >= run.config.group_candidates and 'no_such_member' or nil
  end
  return index and 'no_groups' or nil
end

-- The version that a member was begun under: what was recorded of it, what its segments begin with, what the report says, or
-- what the session said last. Or else why there is none. Also whether the session said it under the current lineage.
local function version_of(report, known, entry)
  local first = report.segments and report.segments[1]
  local version = known.version or first and first.from_token == 0 and first.version or report.version
  if not version and (first or known.segments) then
    version = entry.version
  end
  if version then
    return version, false
  end
  local session = sessions.caller
  if not session or not session.version then
    return nil, false, 'version_unknown'
  end
  version = weights.said_version(session)
  return version, true, not version and 'version_not_published' or nil
end

local function add_figures(entry, report)
  if report.reward then
    entry.rewarded, entry.reward_sum = (entry.rewarded or 0) + 1, (entry.reward_sum or 0) + report.reward
    entry.first_reward = entry.first_reward or report.reward
    entry.unequal = entry.unequal or report.reward ~= entry.first_reward or nil
  end
  if report.tokens then
    entry.counted, entry.token_sum = (entry.counted or 0) + 1, (entry.token_sum or 0) + report.tokens
  end
end

-- Takes the report of a member into account, in `entry` alone, which is not saved. Returns the member; nil if it does not
-- count; nil and why if it is refused.
function groups.count(call, lineage, id, entry, report)
  local is_over = groups.is_filled(entry) or entry.state == 'reserved' and groups.cannot_be_filled(entry)
  if is_over or groups.is_reported(entry, report.index) then
    return nil
  end
  local known = groups.load(id, report.index) or {}
  local member = {
    index = report.index,
    state = report.failed and 'failed' or 'complete',
    version = known.version,
    newest = known.newest,
    segments = known.segments,
    tokens = report.tokens,
    payload = report.payload,
    meta = report.meta,
    note = report.note,
    worker = call.worker,
    session = sessions.caller and sessions.caller_token,
    at_ms = run.now_ms,
  }
  if report.failed then
    entry.failed = entry.failed + 1
  else
    local version, is_said, unknown = version_of(report, known, entry)
    if unknown then
      return nil, unknown
    end
    local of_lineage = is_said and not call.lineage and run.state.lineage or lineage
    local newest_named = segments.newest(version, report.segments)
    local refused = segments.refusal(newest_named, of_lineage)
    if refused then
      return nil, refused
    end
    if version < entry.version then
      return nil, 'version_too_stale'
    end
    member.segments = segments.join(version, known.segments, report.segments)
    if not member.segments then
      return nil, 'segment_out_of_order'
    end
    member.version, member.newest = version, segments.newest(version, member.segments)
    call.has_more = call.has_more or member.newest > newest_named
    member.reward = report.reward
    segments.raise(entry, member.newest)
    entry.complete = entry.complete + 1
    add_figures(entry, report)
  end
  if member.payload then
    entry.with_payload = (entry.with_payload or 0) + 1
  end
  local before, after = string.sub(entry.marks, 1, report.index), string.sub(entry.marks, report.index + 2)
  entry.marks = before .. (report.failed and 'f' or 'c') .. after
  return member
end

-- Keeps members that counted. The entry is saved by the caller.
function groups.keep(id, entry, members)
  for _, member in ipairs(members) do
    local has_failed = member.state == 'failed'
    tables.effect({
      effect = 'member',
      id = id,
      index = member.index,
      failed = has_failed or nil,
      version = not has_failed and member.version or nil,
      newest = not has_failed and member.newest ~= member.version and member.newest or nil,
      reward = member.reward,
    })
    groups.save(id, member.index, member)
  end
  if entry.state == 'reserved' and #members > 0 then
    local before = run.config.group_candidates - entry.complete - entry.failed + #members
    run.state.generating = run.state.generating - before + entries.generating(entry)
  end
end

-- Why a group that is filled, or cannot be, is discarded instead of occupied; nil if it is occupied.
function groups.reason_to_discard(entry)
  if not groups.is_filled(entry) then
    return 'group_failed'
  end
  local is_equal = entry.rewarded == run.config.group_size and not entry.unequal
  return run.config.drop_zero_variance and is_equal and 'zero_variance' or nil
end

-- What the group has of its members, where its client did not say it of the group: the mean reward, and all tokens.
function groups.sum_up(entry)
  local size = run.config.group_size
  if not entry.reward and entry.rewarded == size then
    entry.reward = entry.reward_sum / size
  end
  if not entry.tokens and entry.counted == size then
    entry.tokens = math.min(entry.token_sum, 2 ^ 53)
  end
end

-- The group is filled: its holder, who may generate the other candidates, is told once to stop them.
function groups.cancel_rest(id, entry)
  if entry.rest_told or not groups.has_rest(entry) then
    return
  end
  entry.rest_told = true
  redis.call('ZADD', keys.cancelled, 0, sessions.member(entries.holder_of(entry), id))
  run.wake_worker(entry.worker)
end

-- What a session is told of an entry that it is to stop generating, in whole or in part.
function groups.cancellation(id, entry)
  if entry and entry.rest_told and (entry.state ~= 'discarded' or entry.discarded_from == 'occupied') then
    return { id = id, reason = 'group_filled', members = groups.indexes(entry, '-') }
  end
  return { id = id, reason = entry and entry.reason or 'abandoned' }
end

-- The payloads that the members left, or nil.
function groups.payloads(id, entry)
  if not entry.with_payload then
    return nil
  end
  local fields = {}
  for index = 0, run.config.group_candidates - 1 do
    if groups.is_reported(entry, index) then
      fields[#fields + 1] = groups.field(id, index)
    end
  end
  local payloads = {}
  for _, packed in ipairs(redis.call('HMGET', keys.members, unpack(fields))) do
    payloads[#payloads + 1] = packed and cmsgpack.unpack(packed).payload or nil
  end
  return payloads
end

-- Forgets the members with their entry, and what its holder was to be told of them.
function groups.forget(id, entry)
  if not entry.marks then
    return
  end
  local fields = {}
  for index = 0, run.config.group_candidates - 1 do
    fields[#fields + 1] = groups.field(id, index)
  end
  redis.call('HDEL', keys.members, unpack(fields))
  redis.call('ZREM', keys.cancelled, sessions.member(entries.holder_of(entry), id))
end

-- How many entries one step may forget, so that it forgets not many more members than it would entries.
function groups.step(entries_in_a_step)
  return math.max(1, math.floor(entries_in_a_step * 8 / math.max(8, run.config.group_candidates)))
end

-- The holder's session is over, or never heard of the group: the group waits for another where it is.
function groups.orphan(id, entry)
  redis.call('ZREM', keys.held, sessions.member(entries.holder_of(entry), id))
  redis.call('ZADD', keys.orphans, redis.call('ZSCORE', keys.reserved, id), id)
  entry.orphan = true
  entries.save(id, entry)
  tables.effect({ effect = 'orphaned', id = id })
  run.wake('admission')
end

-- The front-most group without an owner that weights of this version may go on with: its id and where it is, or nil.
function groups.adoptable(version)
  local found
  for of_version = math.max(tables.first_buffer() - tables.ETA, 0), version do
    local base = tables.ring_base(of_version)
    local past = string.format('(%d', base + tables.RING)
    local head = redis.call('ZRANGE', keys.orphans, base, past, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
    local position = head[1] and head[2] - base
    if position and (not found or position < found.position) then
      found = { id = head[1], position = position }
    end
  end
  return found
end

-- The caller's session holds the group from now on, and the reservation's age begins anew.
function groups.adopt(id, entry)
  redis.call('ZREM', keys.orphans, id)
  redis.call('ZREM', keys.cancelled, sessions.member(entries.holder_of(entry), id))
  redis.call('ZADD', keys.ages, run.state.clock, id)
  entry.orphan = nil
  run.state.totals.adopted = run.state.totals.adopted + 1
  tables.effect({ effect = 'adopted', id = id })
end
