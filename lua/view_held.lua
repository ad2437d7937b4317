#!lua flags=no-writes
-- Shows the reservations of a worker's current session, or of all, in the order of worker, session and id, a page at a time.
--
-- args     worker?, after? (an id), limit (1 to 100)
-- body     entries: [{ id, entry, place }], next?
--@include run
--@include tables
--@include entries
--@include sessions

local stopped = open()
if stopped then
  return stopped
end
open_tables()

local low, high = '-', '+'
if args.worker then
  local token = current_token(args.worker)
  if not token then
    return answer({ entries = {} })
  end
  low, high = session_range(session_key(args.worker, token))
end
local last = args.after and load_entry(args.after)
if last then
  low = '(' .. session_member(holder_of(last), args.after)
end

local entries, next_id = {}, nil
for index, member in ipairs(redis.call('ZRANGE', HELD, low, high, 'BYLEX', 'LIMIT', 0, args.limit + 1)) do
  if index > args.limit then
    next_id = entries[index - 1].id
    break
  end
  local id = string.match(member, '(%Z+)$')
  local entry = load_entry(id)
  entries[index] = { id = id, entry = entry, place = place(reserved_position(id, entry.version)) }
end
return answer({ entries = entries, next = next_id })
