#!lua flags=allow-oom
-- Checkpoint: the trainer has a durable checkpoint of a version, so that the batches below it need not be kept.
--
-- args     seen?, epoch?, version
-- body     let_go      oldest_kept?
--          version_not_published  policy_version (the trainer's)
-- event    checkpoint, if something is let go of
--
-- Safe to send twice: the second finds nothing to let go of.
--@include run
--@include sessions
--@include tables
--@include batches
--@include trainer

local stopped = sessions.begin() or trainer.refuse()
if stopped then
  return stopped
end

local state = run.state
if args.version > state.trainer_version then
  return sessions.refuse('version_not_published', { policy_version = state.trainer_version })
end
if args.version > state.oldest_kept then
  state.oldest_kept = args.version
  run.record({ type = 'checkpoint', version = args.version, ids = {}, effects = {} })
end
return run.finish({ outcome = 'let_go', oldest_kept = batches.oldest() })
