#!lua
-- Reserve: admits entries, one for each of `ids` in turn, until one is blocked.
--
-- args     worker, session?, version?, ids (1 to 100), prompts? (as many as ids at most),
--          request? { id, fingerprint, step }: step 0 begins the call or repeats it, later ones go on with it
-- body     granted     the step's answer: granted, blocked_by?, and what with_run adds
--          repeated    answers: those of all steps of the first call; nothing was added and its later steps are refused
--          closed      a repetition has been answered: this step was not done
--          version_unknown | version_not_published | version_too_stale | request_id_reused
-- event    reserve, if anything was granted
--
-- Safe to send twice: by the request id, or else by the ids.
--@include run
--@include tables
--@include entries
--@include sessions

local TEN_MINUTES_MS = 600000

local stopped = open() or enter()
if stopped then
  return stopped
end

local request = args.request
local request_key = request and session_name .. '\0' .. request.id
local known

local function step_answer(step)
  return redis.call('HGET', REQUESTS, request_key .. '\0' .. step)
end

if request then
  local packed = redis.call('HGET', REQUESTS, request_key)
  known = packed and cmsgpack.unpack(packed)
  if known and known.fingerprint ~= request.fingerprint then
    return refuse('request_id_reused')
  end
  if known and request.step == 0 then
    known.closed = true
    redis.call('HSET', REQUESTS, request_key, cmsgpack.pack(known))
    local answers = {}
    for step = 0, known.steps - 1 do
      answers[step + 1] = cmsgpack.unpack(step_answer(step))
    end
    return finish({ outcome = 'repeated', answers = answers })
  end
  if known and request.step < known.steps then
    return finish(cmsgpack.unpack(step_answer(request.step)))
  end
  if request.step > 0 and (not known or known.closed) then
    return refuse('closed')
  end
end

local function grant(id, entry, position)
  local at = place(position)
  return {
    id = id,
    prompt = entry.prompt,
    version = entry.version,
    deadline = entry.version + ETA,
    buffer = at.buffer,
    slot = at.slot,
    attempt = entry.attempt,
  }
end

local function answer_with(granted, blocked_by)
  return with_run({ outcome = 'granted', granted = granted, blocked_by = blocked_by })
end

-- A script that was sent twice without a request id: its ids are new each time, so what they name is its own work.
if redis.call('HEXISTS', ENTRIES, args.ids[1]) == 1 then
  local granted = {}
  for _, id in ipairs(args.ids) do
    local entry = load_entry(id)
    if entry and entry.state == 'reserved' then
      granted[#granted + 1] = grant(id, entry, reserved_position(id, entry.version))
    end
  end
  return finish(answer_with(granted))
end

local version = args.version or session.version
if not version then
  return refuse('version_unknown')
end
if version > state.policy_version then
  return refuse('version_not_published', { version = version, policy_version = state.policy_version })
end
if version < state.policy_version and version + ETA < state.next_buffer then
  return refuse('version_too_stale', { policy_version = state.policy_version })
end

local granted, blocked_by, generating = {}, nil, reserved_in_all()
for index, id in ipairs(args.ids) do
  if config.max_concurrency and generating >= config.max_concurrency then
    blocked_by = 'concurrency'
    break
  end
  local position = admission_position(version)
  if not position then
    blocked_by = 'staleness'
    break
  end
  local entry = {
    state = 'reserved',
    prompt = args.prompts and args.prompts[index],
    worker = args.worker,
    session = string.sub(session_name, #args.worker + 2),
    version = version,
    attempt = 1,
    reserved_at_ms = now_ms,
    granted_at = state.clock,
  }
  admit(id, entry, position)
  save_entry(id, entry)
  redis.call('ZADD', HELD, 0, session_member(session_name, id))
  generating = generating + 1
  granted[#granted + 1] = grant(id, entry, position)
end

local body = answer_with(granted, blocked_by)
if #granted == 0 then
  return finish(body)
end

session.version = version
save_session()
state.totals.reserved = state.totals.reserved + #granted
if request then
  known = known or { fingerprint = request.fingerprint, steps = 0, checked = 0 }
  redis.call('HSET', REQUESTS, request_key .. '\0' .. known.steps, cmsgpack.pack(body))
  known.steps = known.steps + 1
  redis.call('HSET', REQUESTS, request_key, cmsgpack.pack(known))
  redis.call('ZADD', FORGET, state.clock + TEN_MINUTES_MS, 'request:' .. request_key)
end
local ids = {}
for index, one in ipairs(granted) do
  ids[index] = one.id
end
record({
  type = 'reserve',
  worker = args.worker,
  session = string.sub(session_name, #args.worker + 2),
  version = version,
  ids = ids,
  effects = take_effects(),
})
return finish(body)
