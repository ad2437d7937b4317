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
--@include sessions
--@include tables
--@include entries

local TEN_MINUTES_MS = 600000

local stopped = run.open(function()
  run.look_at({ 'entries', 'sessions', 'requests' }, { 'reserved', 'leases', 'held', 'forget' })
end) or sessions.enter()
if stopped then
  return stopped
end

local request = args.request
local request_key = request and sessions.caller_key .. '\0' .. request.id
local known

local function step_answer(step)
  return redis.call('HGET', keys.requests, request_key .. '\0' .. step)
end

if request then
  local packed = redis.call('HGET', keys.requests, request_key)
  known = packed and cmsgpack.unpack(packed)
  if known and known.fingerprint ~= request.fingerprint then
    return sessions.refuse('request_id_reused')
  end
  if known and request.step == 0 then
    known.closed = true
    redis.call('HSET', keys.requests, request_key, cmsgpack.pack(known))
    local answers = {}
    for step = 0, known.steps - 1 do
      answers[step + 1] = cmsgpack.unpack(step_answer(step))
    end
    return run.finish({ outcome = 'repeated', answers = answers })
  end
  if known and request.step < known.steps then
    return run.finish(cmsgpack.unpack(step_answer(request.step)))
  end
  if request.step > 0 and (not known or known.closed) then
    return sessions.refuse('closed')
  end
end

local function grant(id, entry, position)
  local at = tables.place(position)
  return {
    id = id,
    prompt = entry.prompt,
    version = entry.version,
    deadline = entry.version + tables.ETA,
    buffer = at.buffer,
    slot = at.slot,
    attempt = entry.attempt,
  }
end

local function answer_with(granted, blocked_by)
  return sessions.with_run({ outcome = 'granted', granted = granted, blocked_by = blocked_by })
end

-- A script that was sent twice without a request id: its ids are new each time, so what they name is its own work.
if redis.call('HEXISTS', keys.entries, args.ids[1]) == 1 then
  local granted = {}
  for _, id in ipairs(args.ids) do
    local entry = entries.load(id)
    if entry and entry.state == 'reserved' then
      granted[#granted + 1] = grant(id, entry, tables.reserved_position(id, entry.version))
    end
  end
  return run.finish(answer_with(granted))
end

local version = args.version or sessions.caller.version
if not version then
  return sessions.refuse('version_unknown')
end
if version > run.state.policy_version then
  return sessions.refuse('version_not_published', { version = version, policy_version = run.state.policy_version })
end
if version < run.state.policy_version and version + tables.ETA < run.state.next_buffer then
  return sessions.refuse('version_too_stale', { policy_version = run.state.policy_version })
end

local granted, blocked_by, generating = {}, nil, tables.reserved_in_all()
for index, id in ipairs(args.ids) do
  if run.config.max_concurrency and generating >= run.config.max_concurrency then
    blocked_by = 'concurrency'
    break
  end
  local position = tables.admission_position(version)
  if not position then
    blocked_by = 'staleness'
    break
  end
  local entry = {
    state = 'reserved',
    prompt = args.prompts and args.prompts[index],
    worker = args.worker,
    session = sessions.caller_token,
    version = version,
    attempt = 1,
    reserved_at_ms = run.now_ms,
    granted_at = run.state.clock,
  }
  entries.admit(id, entry, position)
  entries.save(id, entry)
  redis.call('ZADD', keys.held, 0, sessions.member(sessions.caller_key, id))
  generating = generating + 1
  granted[#granted + 1] = grant(id, entry, position)
end

local body = answer_with(granted, blocked_by)
if #granted == 0 then
  return run.finish(body)
end

if sessions.caller.version ~= version then
  sessions.caller.version = version
  sessions.save()
end
run.state.totals.reserved = run.state.totals.reserved + #granted
if request then
  known = known or { fingerprint = request.fingerprint, steps = 0, checked = 0 }
  redis.call('HSET', keys.requests, request_key .. '\0' .. known.steps, cmsgpack.pack(body))
  known.steps = known.steps + 1
  redis.call('HSET', keys.requests, request_key, cmsgpack.pack(known))
  redis.call('ZADD', keys.forget, run.state.clock + TEN_MINUTES_MS, 'request:' .. request_key)
end
local ids = {}
for index, one in ipairs(granted) do
  ids[index] = one.id
end
run.record({
  type = 'reserve',
  worker = args.worker,
  session = sessions.caller_token,
  version = version,
  ids = ids,
  effects = tables.take_effects(),
})
return run.finish(body)
