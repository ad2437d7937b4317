#!lua
-- Occupy: finishes entries, one after another, each a step of its own.
--
-- args     calls: [{ mark, seen?, worker?, session?, lineage?,
--          items: [{ id, finish { reward?, tokens?, payload?, meta? }, segments?: [{ version, from_token }],
--                    members?: as the report of member.lua }] }]; of several, at most 8 items and members
-- body     replies, to each call: results, one for each item: { id, state, buffer, slot, buffer_state, late }, or
--          { id, state = discarded, reason } of a group of equal rewards, or too many of whose members failed; or { id, code,
--          … } with the codes unknown_trajectory, trajectory_discarded (reason), superseded, group_incomplete (complete, needed), and
--          those of member.lua
-- event    occupy, for each entry that this call finished; `late` if it had been discarded (Late occupy);
--          member, if members were recorded that do not fill their group;
--          discard, if abandoned weights were named
--
-- Safe to send twice: an entry that is occupied already only shows where it is.
--@include run
--@include sessions
--@include tables
--@include entries
--@include moves
--@include figures
--@include prompts
--@include discarding
--@include finishing
--@include weights
--@include segments
--@include groups

local function record(event_type, call, id, entry, fields)
  fields = fields or {}
  fields.type, fields.ids = event_type, { id }
  fields.worker = call.worker or entry.worker
  fields.session = sessions.caller and sessions.caller_token or entry.session
  fields.effects = tables.take_effects()
  run.record(fields)
end

-- What an item may not say, by the shape of the run.
local function unfit(item)
  for _, report in ipairs(item.members or {}) do
    local word = groups.unfit(report.index)
    if word then
      return word
    end
  end
  return item.segments and groups.has() and 'member_missing' or nil
end

-- Takes the segments that a trajectory was generated in into account, in `entry` alone. Returns why not, if they are refused;
-- otherwise whether any is newer than all that was known.
local function continue(entry, lineage, named)
  local refused = segments.refusal(segments.newest(0, named), lineage)
  if refused then
    return refused
  end
  local following = segments.join(entry.version, entry.segments, named)
  if not following then
    return 'segment_out_of_order'
  end
  entry.segments = #following > 0 and following or nil
  return nil, segments.raise(entry, segments.newest(entry.version, following))
end

-- The same for the members of a group. Returns why not, if one is refused; otherwise those that count.
local function count_members(call, lineage, id, entry, reports)
  local members = {}
  for _, report in ipairs(reports or {}) do
    local member, refused = groups.count(call, lineage, id, entry, report)
    if refused then
      return refused
    end
    members[#members + 1] = member
  end
  return nil, members
end

-- A reserved entry that abandoned weights generated a part of (Re-place).
local function rewind(call, id)
  local entry = entries.load(id)
  entries.discard(id, entry, 'rewound', sessions.caller_key)
  record('discard', call, id, entry, { reason = 'rewound' })
end

local function occupy(call, lineage, item)
  local id = item.id
  local entry = entries.load(id)
  local function refuse(code, fields)
    fields = fields or {}
    fields.id, fields.code = id, code
    return fields
  end
  if not entry then
    return refuse('unknown_trajectory')
  end
  local misfit = unfit(item)
  if misfit then
    return refuse(misfit, { candidates = run.config.group_candidates })
  end
  local is_late = entry.state == 'discarded'
  if entry.state == 'occupied' or is_late and groups.GONE[entry.reason] then
    return entries.outcome(id, entry)
  end
  local reason = entry.reason
  local barred = is_late and entries.late_refusal(id, entry)
  if barred then
    return refuse(barred, { reason = reason })
  end

  local refused, is_newer, members
  call.has_more = nil
  if groups.has() then
    refused, members = count_members(call, lineage, id, entry, item.members)
  elseif item.segments then
    refused, is_newer = continue(entry, lineage, item.segments)
  end
  if refused == 'abandoned' then
    if not is_late then
      rewind(call, id)
    end
    return refuse('trajectory_discarded', { reason = is_late and reason or 'rewound' })
  elseif refused then
    return refuse(refused, { policy_version = run.state.policy_version })
  end

  local named = { lineage = segments.logged(call, lineage) }
  if members and not groups.is_filled(entry) and (is_late or not groups.cannot_be_filled(entry)) then
    if #members > 0 then
      groups.keep(id, entry, members)
      entries.save(id, entry)
      record('member', call, id, entry, named)
    end
    return refuse('group_incomplete', { complete = entry.complete, needed = run.config.group_size })
  end
  local late_position
  if is_late then
    late_position = tables.admission_position(entry.version)
    if not late_position then
      return refuse('trajectory_discarded', { reason = reason })
    end
  end

  for field, value in pairs(item.finish) do
    entry[field] = value
  end
  if members then
    groups.keep(id, entry, members)
  elseif is_newer then
    tables.effect({ effect = 'continued', id = id, version = entry.newest })
  end
  entries.conclude(id, entry, late_position)
  named.late = entry.late
  record('occupy', call, id, entry, named)
  return entries.outcome(id, entry)
end

return sessions.run_calls(function()
  local hashes = { 'entries', 'occupied', 'sessions', 'batches', 'members', 'prompts', 'figures' }
  run.look_at(hashes, { 'reserved', 'leases', 'held', 'cancelled', 'forget', 'orphans', 'ages', 'queue', 'fates' })
end, function(call)
  if weights.is_above(call) then
    return nil, { outcome = 'ledger_behind' }
  end
  local lineage = segments.lineage_of(call)
  local results = {}
  for index, item in ipairs(call.items) do
    results[index] = occupy(call, lineage, item)
  end
  if sessions.caller then
    sessions.save()
  end
  tables.wake()
  return { results = results }
end)
