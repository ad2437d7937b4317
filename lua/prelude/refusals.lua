-- What explain tells of the workers: the last refusal of a Reserve, which stands in the session's record until one of its
-- Reserves is not refused, and when anybody last asked for a place, in state.last_reserve_at_ms.
local REFUSALS = {
  version_unknown = true,
  version_not_published = true,
  version_too_stale = true,
  request_id_reused = true,
}

-- Takes down what a Reserve was answered. It writes the session's record only when that says something new.
function sessions.note_reserve(outcome)
  run.state.last_reserve_at_ms = run.now_ms
  local refusal = REFUSALS[outcome] and outcome or nil
  if sessions.caller.last_refusal ~= refusal then
    sessions.caller.last_refusal = refusal
    sessions.save()
  end
end
