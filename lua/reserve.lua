#!lua
-- Reserve: admits entries, one for each of `ids` in turn, until one is blocked. Groups without an owner go first, each in place
-- of one of `ids` (Adoption).
--
-- args     calls: [{ mark, seen?, worker, session?, version?, lineage?, adopt?, ids (1 to 50), prompts? (as many as ids at most),
--          request? { id, fingerprint, step }: step 0 begins the call or repeats it, later ones go on with it }]
-- body     replies, to each call:
--          granted     the step's answer: granted, blocked_by?, and what with_run adds
--          repeated    answers: those of all steps of the first call; nothing was added and its later steps are refused
--          closed      a repetition has been answered: this step was not done
--          prompts_given (the run hands them out) | version_unknown | version_not_published | version_too_stale | request_id_reused
-- event    reserve, for each call that was granted anything
--
-- Safe to send twice: by the request id, or else by the ids.
--@include run
--@include sessions
--@include tables
--@include entries
--@include prompts
--@include weights
--@include groups
--@include refusals

local TEN_MINUTES_MS = 600000

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
    position = entry.position,
  }
end

local function grant_of_adopted(id, entry, position)
  local granted = grant(id, entry, position)
  granted.adopted = true
  granted.members_done, granted.members_failed = groups.indexes(entry, 'c'), groups.indexes(entry, 'f')
  return granted
end

local function answer_with(granted, blocked_by)
  local orphans = tables.HAS_ORPHANS and redis.call('ZCARD', keys.orphans) or 0
  return sessions.with_run({ outcome = 'granted', granted = granted, blocked_by = blocked_by, orphans = orphans })
end

local function step_answer(request_key, step)
  return cmsgpack.unpack(redis.call('HGET', keys.requests, request_key .. '\0' .. step))
end

-- What a request that was met before is answered, or nil if this step of it is to be done.
local function known_answer(request, request_key, known)
  if known and known.fingerprint ~= request.fingerprint then
    return { outcome = 'request_id_reused' }
  end
  if known and request.step == 0 then
    known.closed = true
    redis.call('HSET', keys.requests, request_key, cmsgpack.pack(known))
    local answers = {}
    for step = 0, known.steps - 1 do
      answers[step + 1] = step_answer(request_key, step)
    end
    return { outcome = 'repeated', answers = answers }
  end
  if known and request.step < known.steps then
    return step_answer(request_key, request.step)
  end
  if request.step > 0 and (not known or known.closed) then
    return { outcome = 'closed' }
  end
end

local function remember(request, request_key, known, answer)
  known = known or { fingerprint = request.fingerprint, steps = 0, checked = 0 }
  redis.call('HSET', keys.requests, request_key .. '\0' .. known.steps, cmsgpack.pack(answer))
  known.steps = known.steps + 1
  redis.call('HSET', keys.requests, request_key, cmsgpack.pack(known))
  redis.call('ZADD', keys.forget, run.state.clock + TEN_MINUTES_MS, 'request:' .. request_key)
end

-- A script that was sent twice without a request id: its ids are new each time, so what they name is its own work.
local function own_work(ids)
  local granted = {}
  for _, id in ipairs(ids) do
    local entry = entries.load(id)
    if entry and entry.state == 'reserved' then
      granted[#granted + 1] = grant(id, entry, tables.reserved_position(id, entry.version))
    end
  end
  return answer_with(granted)
end

-- The weights that the call speaks of: their version and lineage, or else why they may not be used.
local function weights_of(call)
  local latest, session = run.state.policy_version, sessions.caller
  if not call.version and not session.version then
    return nil, nil, { outcome = 'version_unknown' }
  end
  local version = call.version or weights.said_version(session)
  local lineage = weights.lineage_of(call, session)
  if version and not call.version and not call.lineage then
    lineage = run.state.lineage -- it was said under this one
  end
  if not version or not lineage or version > latest or weights.are_abandoned(version, lineage) then
    return nil, nil, { outcome = 'version_not_published', policy_version = latest }
  end
  if version < latest and version + tables.ETA < run.state.next_buffer then
    return nil, nil, { outcome = 'version_too_stale', policy_version = latest }
  end
  return version, lineage
end

-- Makes the caller's session the owner of groups that have none, front-most first. No admission, it is blocked by nothing.
local function adopt(call, version, granted, ids)
  while #granted < #call.ids do
    local found = groups.adoptable(version)
    if not found then
      return
    end
    local entry = entries.load(found.id)
    groups.adopt(found.id, entry)
    entry.worker, entry.session = call.worker, sessions.caller_token
    entry.granted_at = run.state.clock
    entries.save(found.id, entry)
    redis.call('ZADD', keys.held, 0, sessions.member(sessions.caller_key, found.id))
    granted[#granted + 1], ids[#ids + 1] = grant_of_adopted(found.id, entry, found.position), found.id
  end
end

-- Admits what there is a place for. Returns what blocks the next.
local function admit(call, version, granted, ids)
  local adopted = #granted
  for index = 1, #call.ids - adopted do
    local id = call.ids[adopted + index]
    if tables.is_draining_to_a_stop() then
      return 'draining'
    end
    if not entries.fit_concurrency() then
      return 'concurrency'
    end
    local position = tables.admission_position(version)
    if not position then
      return 'staleness'
    end
    local prompt_position, prompt
    if run.config.prompt_queue then
      prompt_position, prompt = prompts.next()
      if not prompt then
        return 'prompts'
      end
    end
    local entry = {
      state = 'reserved',
      prompt = prompt and prompt.id or call.prompts and call.prompts[index],
      position = prompt_position,
      worker = call.worker,
      session = sessions.caller_token,
      version = version,
      lineage = run.state.lineage > 0 and run.state.lineage or nil,
      attempt = prompt and prompt.attempt or 1,
      reserved_at_ms = run.now_ms,
      granted_at = run.state.clock,
    }
    if groups.has() then
      groups.begin(entry)
    end
    entries.admit(id, entry, position)
    entries.save(id, entry)
    if prompt then
      prompts.give(id, entry, prompt, 'in_flight')
    end
    redis.call('ZADD', keys.held, 0, sessions.member(sessions.caller_key, id))
    redis.call('ZADD', keys.ages, run.state.clock, id)
    run.state.last_admission = run.state.clock
    granted[#granted + 1], ids[#ids + 1] = grant(id, entry, position), id
  end
end

local function reserve(call)
  if weights.is_above(call) then
    return nil, { outcome = 'ledger_behind' }
  end
  if run.config.prompt_queue and call.prompts and #call.prompts > 0 then
    return { outcome = 'prompts_given' }
  end
  local adopts = tables.HAS_ORPHANS and call.adopt ~= false
  -- A group that was adopted has none of `ids`: a call without a request id that may adopt is known by the first of them.
  local by_ids = adopts and not call.request
  local request = by_ids and { id = '\0' .. call.ids[1], fingerprint = '', step = 0 } or call.request
  local request_key, known
  if request then
    request_key = sessions.caller_key .. '\0' .. request.id
    local packed = redis.call('HGET', keys.requests, request_key)
    known = packed and cmsgpack.unpack(packed)
    local answer
    if known and by_ids then
      answer = step_answer(request_key, 0)
    else
      answer = known_answer(request, request_key, known)
    end
    if answer then
      return answer
    end
  end
  if redis.call('HEXISTS', keys.entries, call.ids[1]) == 1 then
    return own_work(call.ids)
  end
  local version, lineage, refused = weights_of(call)
  if refused then
    return refused
  end

  local granted, ids = {}, {}
  if adopts and redis.call('ZCARD', keys.orphans) > 0 then
    adopt(call, version, granted, ids)
  end
  local adopted = #granted
  local blocked_by = admit(call, version, granted, ids)
  local answer = answer_with(granted, blocked_by)
  if #granted == 0 then
    return answer
  end
  if weights.said_version(sessions.caller) ~= version then
    weights.say(sessions.caller, version)
    sessions.save()
  end
  run.state.totals.reserved = run.state.totals.reserved + #granted - adopted
  if request and (adopted > 0 or not by_ids) then
    remember(request, request_key, known, answer)
  end
  run.record({
    type = 'reserve',
    worker = call.worker,
    session = sessions.caller_token,
    version = version,
    lineage = lineage > 0 and lineage or nil,
    ids = ids,
    effects = tables.take_effects(),
  })
  return answer
end

-- The data of the prompts goes with every answer, also with one that is repeated.
local function reserve_with_data(call)
  local body, ended = reserve(call)
  if body and run.config.prompt_queue then
    for _, answer in ipairs(body.answers or { body }) do
      prompts.attach_data(answer.granted or {})
    end
  end
  return body, ended
end

return sessions.run_calls(function()
  local hashes = { 'entries', 'sessions', 'requests', 'prompts' }
  run.look_at(hashes, { 'reserved', 'leases', 'held', 'forget', 'orphans', 'cancelled', 'ages', 'queue' })
end, function(call)
  local answer, ended = reserve_with_data(call)
  if answer then
    sessions.note_reserve(answer.outcome)
  end
  return answer, ended
end)
