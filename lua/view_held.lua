#!lua flags=no-writes
-- Shows the reservations of a worker's current session, or of all, in the order of worker, session and id, a page at a
-- time.
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

local low, high = '-', '+'
if args.worker then
  local token = sessions.current_token(args.worker)
  if not token then
    return run.answer({ entries = {} })
  end
  low, high = sessions.range(sessions.key_of(args.worker, token))
end
local last = args.after and entries.load(args.after)
if last then
  low = '(' .. sessions.member(entries.holder_of(last), args.after)
end

local shown, next_id = {}, nil
for index, member in ipairs(redis.call('ZRANGE', keys.held, low, high, 'BYLEX', 'LIMIT', 0, args.limit + 1)) do
  if index > args.limit then
    next_id = shown[index - 1].id
    break
  end
  local id = string.match(member, '(%Z+)$')
  local entry = entries.load(id)
  shown[index] = { id = id, entry = entry, place = tables.place(tables.reserved_position(id, entry.version)) }
end
return run.answer({ entries = shown, next = next_id })
