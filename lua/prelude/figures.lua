-- What became of the entries, by length: the figures from which GET …/distribution is made.
--
-- A field of `figures` is a kind and what it is counted by, and holds { entries, with_tokens, tokens, staleness, queued,
-- queued_ms }: how many entries; of those whose length is known, how many and the sum of the lengths; the sum of the
-- stalenesses; and of those that had finished, how many and how long they waited in the tables in all.
--
--   finished:BUCKET   finished, whatever became of them since, and groups of equal rewards, which are discarded as they do;
--                     neither their staleness nor their wait is known yet
--   trained:BUCKET    trained, and no longer kept: what is kept can still be rewound, and is counted when somebody looks
--   filtered:BUCKET, discarded:BUCKET
--   by_reason:REASON  filtered or discarded, by the reason under which the totals count them
--
-- Buckets are those of src/ledger/distribution/buckets.rs: the length's binary digits and the sixteenth of its octave, so
-- that both count in whole numbers and agree. The bucket of an entry without a length is `-`.
function figures.bucket(tokens)
  if not tokens then
    return '-'
  end
  if tokens == 0 then
    return '0'
  end
  local mantissa, digits = math.frexp(tokens)
  return string.format('%d', digits * 16 + math.floor((mantissa - 0.5) * 32))
end

function figures.add(field, tokens, staleness, queued_ms)
  local packed = redis.call('HGET', keys.figures, field)
  local sum = packed and cmsgpack.unpack(packed) or { 0, 0, 0, 0, 0, 0 }
  sum[1] = sum[1] + 1
  if tokens then
    sum[2], sum[3] = sum[2] + 1, sum[3] + tokens
  end
  sum[4] = sum[4] + staleness
  if queued_ms then
    sum[5], sum[6] = sum[5] + 1, sum[6] + queued_ms
  end
  redis.call('HSET', keys.figures, field, cmsgpack.pack(sum))
end

-- The database's clock may have been set back meanwhile.
function figures.waited_ms(entry, until_ms)
  return entry.occupied_at_ms and math.max(0, until_ms - entry.occupied_at_ms)
end

function figures.finished(entry)
  figures.add('finished:' .. figures.bucket(entry.tokens), entry.tokens, 0)
end

function figures.trained(entry, buffer, taken_at_ms)
  local queued_ms = figures.waited_ms(entry, taken_at_ms)
  figures.add('trained:' .. figures.bucket(entry.tokens), entry.tokens, buffer - entry.version, queued_ms)
end

-- An entry that leaves buffer `buffer` without being trained. `counted_as` is the reason in the totals.
function figures.discarded(entry, reason, counted_as, buffer)
  if reason == 'zero_variance' then
    figures.finished(entry)
  end
  local is_client_word = not entries.LEDGER_REASONS[reason]
  local is_filtered = reason == 'zero_variance' or entry.state == 'occupied' and is_client_word
  local kind = is_filtered and 'filtered:' or 'discarded:'
  local staleness, queued_ms = buffer - entry.version, figures.waited_ms(entry, run.now_ms)
  figures.add(kind .. figures.bucket(entry.tokens), entry.tokens, staleness, queued_ms)
  figures.add('by_reason:' .. counted_as, entry.tokens, staleness, queued_ms)
end
