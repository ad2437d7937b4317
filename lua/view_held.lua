#!lua flags=no-writes
-- Shows the reservations of a worker's current session, or of all, in the order of worker, session and id, and behind those
-- of all the groups without an owner, a page at a time.
--
-- args     worker?, after? (an id), limit (1 to 100)
-- body     entries: [{ id, entry, place }], next?
--@include run
--@include sessions
--@include tables
--@include entries

local stopped = run.load()
if stopped then
  return stopped
end
tables.open()

local shown, next_id = {}, nil
local function is_full()
  if #shown == args.limit then
    next_id = shown[#shown].id
    return true
  end
end
local function show(id)
  local entry = entries.load(id)
  shown[#shown + 1] = { id = id, entry = entry, place = tables.place(tables.reserved_position(id, entry.version)) }
end

local low, high = '-', '+'
if args.worker then
  local token = sessions.current_token(args.worker)
  if not token then
    return run.answer({ entries = {} })
  end
  low, high = sessions.range(sessions.key_of(args.worker, token))
end
local last = args.after and entries.load(args.after)
local first_orphan = 0
if last and last.orphan then
  low = '(' .. sessions.member('\255', '')
  first_orphan = (redis.call('ZRANK', keys.orphans, args.after) or -1) + 1
elseif last then
  low = '(' .. sessions.member(entries.holder_of(last), args.after)
end

for _, member in ipairs(redis.call('ZRANGE', keys.held, low, high, 'BYLEX', 'LIMIT', 0, args.limit + 1)) do
  if is_full() then
    break
  end
  show(string.match(member, '(%Z+)$'))
end
local may_be_more = not args.worker and not next_id
for _, id in ipairs(may_be_more and redis.call('ZRANGE', keys.orphans, first_orphan, first_orphan + args.limit) or {}) do
  if is_full() then
    break
  end
  show(id)
end
return run.answer({ entries = shown, next = next_id })
