-- Partial rollout (protocol.md): the segments in which a trajectory or a member was generated. The first one is its version
-- from token 0 and stands nowhere else; in `segments` are those that follow, { version, from_token }, both rising.

local function mark_of(segment)
  return string.format('%d:%d', segment.version, segment.from_token)
end

-- The segments behind the first, with those that a call names; nil if a version or a token does not rise. One that is known
-- may be named again.
function segments.join(first, following, named)
  local all, is_known = {}, { [mark_of({ version = first, from_token = 0 })] = true }
  local function add(segment)
    all[#all + 1] = segment
    is_known[mark_of(segment)] = true
  end
  for _, segment in ipairs(following or {}) do
    add(segment)
  end
  for _, segment in ipairs(named or {}) do
    if not is_known[mark_of(segment)] then
      local last = all[#all] or { version = first, from_token = 0 }
      if segment.version <= last.version or segment.from_token <= last.from_token then
        return nil
      end
      add(segment)
    end
  end
  return all
end

-- The newest of a version and those of the segments.
function segments.newest(version, named)
  for _, segment in ipairs(named or {}) do
    version = math.max(version, segment.version)
  end
  return version
end

-- Notes that `version` generated a part of the entry. Returns whether it is newer than all before.
function segments.raise(entry, version)
  if version <= entries.newest(entry) then
    return false
  end
  entry.newest = version
  entry.lineage = run.state.lineage > 0 and run.state.lineage or nil
  return true
end

-- Why a call may not name weights: 'abandoned' if there are none such any more; 'version_not_published' if there never were,
-- or the session must name their lineage first. Nil if it may.
function segments.refusal(version, lineage)
  if lineage and weights.are_abandoned(version, lineage) then
    return 'abandoned'
  end
  return (not lineage or version > run.state.policy_version) and 'version_not_published' or nil
end

-- The lineage of the weights that a call names, or nil if its session must name it first.
function segments.lineage_of(call)
  if sessions.caller then
    return weights.lineage_of(call, sessions.caller)
  end
  return call.lineage or run.state.lineage
end

-- As the event of the call carries it: left out where it is the current one, and where not all that the event says is of the
-- weights that the call named, because newer ones had been recorded before.
function segments.logged(call, lineage)
  return lineage ~= run.state.lineage and not call.has_more and lineage or nil
end

-- All segments, as they are shown.
function segments.shown(first, following)
  local all = { { version = first, from_token = 0 } }
  for index, segment in ipairs(following or {}) do
    all[index + 1] = segment
  end
  return all
end
