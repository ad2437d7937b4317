-- Which weights a worker may speak of (protocol.md, Terms and Re-place): they are named by version and lineage, and
-- abandoned when a later rewind or forced resume went to below their version.
--
-- state.rewinds holds those points, { lineage, to }: the lineage that began, and the version that it went to, both rising.
-- A point that went further back than one before it says all that the other did.
weights.MOST_REWINDS = 64

function weights.abandon(to)
  local state = run.state
  state.lineage = state.lineage + 1
  local rewinds = state.rewinds or {}
  while #rewinds > 0 and rewinds[#rewinds][2] >= to do
    table.remove(rewinds)
  end
  rewinds[#rewinds + 1] = { state.lineage, to }
  if #rewinds > weights.MOST_REWINDS then
    -- Two in one, which abandons what either does, and somewhat more: workers fetch weights once too often.
    rewinds[2][2] = rewinds[1][2]
    table.remove(rewinds, 1)
  end
  state.rewinds = rewinds
end

function weights.are_abandoned(version, lineage)
  for _, point in ipairs(run.state.rewinds or {}) do
    if point[1] > lineage then
      return point[2] < version
    end
  end
  return false
end

-- The lineage of the weights that a call of a session speaks of, or nil if it must name it: its session was open when the
-- lineage rose, and has not named the new one yet. Naming it is taken down.
function weights.lineage_of(call, session)
  local current = run.state.lineage
  local known = session.lineage or 0
  if call.lineage == current and known < current then
    session.lineage = current
    sessions.save()
  end
  return call.lineage or known == current and current or nil
end

-- Whether the call names a lineage that there is not: the database lost the one that began it.
function weights.is_above(call)
  return call.lineage and call.lineage > run.state.lineage
end

-- What a session said counts until the lineage rises.
function weights.said_version(session)
  return (session.said_in or 0) == run.state.lineage and session.version or nil
end

function weights.say(session, version)
  session.version = version
  session.said_in = run.state.lineage > 0 and run.state.lineage or nil
end
