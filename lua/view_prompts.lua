#!lua flags=no-writes
-- Shows prompts, a page at a time: the queued ones in the order in which they are handed out, all others in the order in
-- which they were fed.
--
-- args     state?, limit, after? (a position), after_queued? { score, member } (in place of it for queued ones)
-- body     shown       fed, counts, prompts: [{ position, id, state, attempt, data?, expected_tokens?, reason?, entry? }],
--                      next?, next_queued?. A page may be short, and even empty, when others lie between
--          no_prompt_queue
--@include run
--@include entries
--@include prompts

local MOST_LOOKED_AT, MOST_FOUND, CHUNK = 20000, 500, 200

local stopped = run.load()
if stopped then
  return stopped
end
if not run.state.prompts then
  return run.answer({ outcome = 'no_prompt_queue' })
end

local function state_of(prompt)
  if prompt.state ~= 'handed_out' then
    return prompt.state
  end
  local entry, next_buffer = entries.load(prompt.entry), run.state.next_buffer
  if entry.state == 'reserved' then
    return 'in_flight'
  end
  local is_streamed = entry.buffer == next_buffer and entry.slot < (run.state.streamed or 0)
  return (entry.buffer < next_buffer or is_streamed) and 'trained' or 'occupied'
end

local shown, next_position, next_queued = {}, nil, nil
local function show(position, prompt, state)
  prompt.position, prompt.state = position, state
  shown[#shown + 1] = prompt
end

-- How many of the queue come before, or are, this member.
local function rank_after(score, member)
  local low = redis.call('ZCOUNT', keys.queue, '-inf', '(' .. score)
  local high = low + redis.call('ZCOUNT', keys.queue, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if redis.call('ZRANGE', keys.queue, middle, middle)[1] <= member then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local function show_queued()
  local after = args.after_queued
  local first = after and rank_after(after.score, after.member) or 0
  local found = redis.call('ZRANGE', keys.queue, first, first + args.limit, 'WITHSCORES')
  for index = 1, #found, 2 do
    if #shown == args.limit then
      next_queued = { score = found[index - 1], member = found[index - 2] }
      return
    end
    local position = prompts.position_of(found[index])
    show(position, prompts.load(position), 'queued')
  end
end

-- Those that left the queue for good are listed by their state.
local function show_left()
  local low = args.after and '(' .. prompts.fate_member(args.state, args.after) or '[' .. args.state .. ':'
  local found = redis.call('ZRANGE', keys.fates, low, '(' .. args.state .. ';', 'BYLEX', 'LIMIT', 0, args.limit + 1)
  for index, member in ipairs(found) do
    if index > args.limit then
      next_position = shown[#shown].position
      return
    end
    local position = prompts.position_of(member)
    show(position, prompts.load(position), args.state)
  end
end

-- Looks through the prompts in the order of feeding. Returns the position before which all were looked at.
local function look_through()
  local first = args.after and args.after + 1 or 0
  local past = math.min(first + MOST_LOOKED_AT, run.state.prompts.fed)
  local found = 0
  for from = first, past - 1, CHUNK do
    local positions = {}
    for position = from, math.min(from + CHUNK, past) - 1 do
      positions[#positions + 1] = position
    end
    for index, packed in ipairs(redis.call('HMGET', keys.prompts, unpack(positions))) do
      local prompt = packed and cmsgpack.unpack(packed)
      local state = prompt and state_of(prompt)
      if prompt and (not args.state or state == args.state) then
        show(positions[index], prompt, state)
      end
      found = found + (prompt and 1 or 0)
      if #shown == args.limit or found == MOST_FOUND then
        return positions[index] + 1
      end
    end
  end
  return past
end

local LEFT = { filtered = true, failed = true, dropped = true }
if args.state == 'queued' then
  show_queued()
elseif LEFT[args.state] then
  show_left()
else
  local past = look_through()
  next_position = past < run.state.prompts.fed and past - 1 or nil
end
return run.answer({
  outcome = 'shown',
  fed = run.state.prompts.fed,
  counts = prompts.counts(),
  prompts = shown,
  next = next_position,
  next_queued = next_queued,
})
