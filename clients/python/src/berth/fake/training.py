"""Take, stream, publish, checkpoint, resume and drain (protocol.md, The trainer)."""

from __future__ import annotations

from .entries import Entry, Json, Problem, conflict, invalid
from .state import RunState
from .stragglers import trainer_calls


def refuse_epoch(run: RunState, epoch: int | None) -> None:
    """Only the newest session may go on."""
    if epoch is not None and epoch > run.epoch:
        raise conflict("ledger_behind", f"the run knows no session after {run.epoch}")
    if run.epoch > 0 and epoch != run.epoch:
        raise conflict("fenced", f"the session is not open: the last one was {run.epoch}")


def next_batch(run: RunState, body: Json) -> tuple[Json, bool]:
    """Takes, or streams; the answer, and whether it gives anything."""
    refuse_epoch(run, body.get("epoch"))
    if "version" in body and body["version"] != run.trainer_version:
        raise conflict("other_batch", f"batch {run.trainer_version} is the next one")
    trainer_calls(run)
    batch = _stream(run, body) if body.get("stream") else _take(run)
    if batch is not None:
        run.trainer.waits_since = None
        is_open = batch["version"] in run.tables.buffers
        state = run.tables.state(batch["version"]) if is_open else "ready"
        return {"batch": batch, "buffer_state": state, "finished": run.finished()}, True
    if run.trainer.waits_since is None and not run.finished():
        run.trainer.waits_since = run.clock
    is_open = run.next_buffer in run.tables.buffers
    answer = {
        "batch": None,
        "buffer_state": run.tables.state(run.next_buffer) if is_open else None,
        "occupied": len(run.tables.occupied_in(run.next_buffer)),
        "needed": run.config["batch_size"],
        "waiting_for_ms": run.clock - (run.trainer.waits_since or run.clock),
        "finished": run.finished(),
    }
    return answer, run.finished()


def _take(run: RunState) -> Json | None:
    """*Take*."""
    version = run.trainer_version
    if version < run.next_buffer:
        is_new = version < run.policy_version and run.trainer.delivered != version
        run.trainer.delivered = version
        return _batch(run, version, run.batches[version], redelivered=not is_new)
    if not _can_take(run):
        return None
    entries = _close(run)
    run.trainer.delivered = version
    return _batch(run, version, entries)


def _can_take(run: RunState) -> bool:
    """Whether buffer H is full, or the last of a drained run; that one may be discarded instead."""
    if run.next_buffer not in run.tables.buffers:
        return False
    if run.tables.is_ready(run.next_buffer):
        return True
    left = run.tables.occupied_in(run.next_buffer)
    if not left or not run.nothing_comes():
        return False
    if run.config["final_batch"] == "discard" and not any(entry.streamed for entry in left):
        for entry in left:
            run.discard(entry, "drained")
        return False
    run.final_batches.add(run.next_buffer)
    return True


def _close(run: RunState) -> list[Entry]:
    version = run.next_buffer
    entries = run.tables.close_first()
    run.batches[version] = entries
    for entry in entries:
        _train(run, entry)
    run.record("take", version=version, final=version in run.final_batches or None)
    run.let_go()
    return entries


def _train(run: RunState, entry: Entry) -> None:
    if entry.taken_at_ms is None:
        entry.taken_at_ms = run.now_ms
        run.totals["trained"] += 1
        if run.queue is not None:
            run.queue.follow(entry, "trained")


def _stream(run: RunState, body: Json) -> Json | None:
    """*Stream*: the next piece behind ``from_offset``, or None while there is none."""
    if "from_offset" not in body:
        raise invalid("from_offset", "a stream must say how many entries it has")
    version, offset = run.trainer_version, body["from_offset"]
    least, most = body.get("min_entries", 1), body.get("max_entries")
    was_whole = version < run.next_buffer
    before = len(run.batches[version] if was_whole else _pieces(run))
    if offset > before:
        raise invalid("from_offset", f"only {before} entries are taken")
    if not was_whole:
        _take_piece(run, offset, least, most)
    is_whole = version < run.next_buffer
    taken = run.batches[version] if is_whole else _pieces(run)
    piece = taken[offset:] if most is None else taken[offset : offset + most]
    complete = is_whole and offset + len(piece) == len(taken)
    if not piece and not complete:
        return None
    # A batch that is trained again is new to this session until it has had all of it.
    is_new = version < run.policy_version and run.trainer.delivered != version
    redelivered = not is_new if was_whole else offset < before
    if complete:
        run.trainer.delivered = version
    return _batch(run, version, piece, offset=offset, complete=complete, redelivered=redelivered)


def _pieces(run: RunState) -> list[Entry]:
    """What is taken of buffer H."""
    return [entry for entry in run.tables.occupied_in(run.next_buffer) if entry.streamed]


def _take_piece(run: RunState, offset: int, least: int, most: int | None) -> None:
    """Takes what is finished and not taken, if the caller has all that was taken before."""
    if run.next_buffer not in run.tables.buffers:
        return
    occupied = run.tables.occupied_in(run.next_buffer)
    streamed = sum(entry.streamed for entry in occupied)
    new = [entry for entry in occupied if not entry.streamed]
    lacking = run.config["batch_size"] - streamed
    ends = run.nothing_comes() and len(occupied) < run.config["batch_size"]
    if offset != streamed or (len(new) < min(least, lacking) and not ends):
        return
    if ends and not streamed and not _can_take(run):
        return
    for entry in new if most is None else new[:most]:
        entry.streamed = True
        _train(run, entry)
    if ends and all(entry.streamed for entry in occupied) and (occupied or streamed):
        run.final_batches.add(run.next_buffer)
        _close(run)
    elif sum(entry.streamed for entry in occupied) == run.config["batch_size"]:
        _close(run)
    elif new:
        run.record("stream", version=run.next_buffer, ids=[entry.id for entry in new])


def _batch(
    run: RunState,
    version: int,
    entries: list[Entry],
    *,
    offset: int = 0,
    complete: bool = True,
    redelivered: bool = False,
) -> Json:
    return {
        "version": version,
        "redelivered": redelivered,
        "replayed": version < run.policy_version,
        "final": version in run.final_batches,
        "offset": offset,
        "complete": complete,
        "trajectories": [run.show(entry) for entry in entries],
    }


def publish(run: RunState, body: Json) -> Json:
    """*Publish*."""
    refuse_epoch(run, body.get("epoch"))
    version, weights = body["version"], body.get("weights")
    if version <= run.trainer_version:
        if _refer(run, version, weights):
            run.record("publish", version=version)
    else:
        expected = run.trainer_version + 1
        if version != expected:
            raise conflict("publish_out_of_order", f"the next version is {expected}", expected=expected)
        if run.trainer_version >= run.next_buffer or run.trainer.delivered != run.trainer_version:
            raise conflict("publish_out_of_order", f"batch {run.trainer_version} was not delivered", expected=expected)
        if run.trainer_version < run.policy_version:
            run.trainer_version += 1
            _refer(run, version, weights)
        else:
            run.advance(weights)
        run.record("publish", version=version)
        run.let_go()
    return {"policy_version": run.policy_version, "trainer_version": run.trainer_version, "lineage": run.lineage}


def _refer(run: RunState, version: int, weights: str | None) -> bool:
    """Gives a version that has none its reference. Returns whether it did."""
    known = run.versions.get(version)
    if known is None or known[0] is not None or weights is None:
        return False
    run.versions[version] = weights, known[1]
    return True


def checkpoint(run: RunState, body: Json) -> Json:
    """Batches below the checkpoint are let go of."""
    refuse_epoch(run, body.get("epoch"))
    if body["version"] > run.trainer_version:
        raise conflict("version_not_published", "the trainer has not come as far", policy_version=run.trainer_version)
    if body["version"] > run.oldest_kept:
        run.oldest_kept = body["version"]
        run.let_go()
        run.record("checkpoint", version=body["version"])
    return {"oldest_kept": min(run.batches, default=None)}


def resume(run: RunState, body: Json, behind_at: int | None) -> Json:
    """*Resume*; ``behind_at`` is the highest sequence number seen of a run that lost writes."""
    token = body.get("session")
    if token is not None and token == run.trainer.token and run.trainer.answer is not None and behind_at is None:
        return run.trainer.answer
    if token in run.old_trainers:
        raise conflict("fenced", "a newer trainer session is open")
    at = body.get("resume_from")
    if at is None:
        if run.policy_version != run.config["initial_version"] or run.lineage != run.first_lineage:
            raise invalid("resume_from", "only before the first publish may it be left out")
        at = run.policy_version
    _go_on(run, at, body.get("mode", "replay"), bool(body.get("force")), behind_at)
    if run.trainer.token is not None:
        run.old_trainers.add(run.trainer.token)
    run.epoch += 1
    trainer = run.trainer = type(run.trainer)(name=body["trainer"], token=token, last_call=run.clock)
    run.let_go()
    weights = run.versions.get(run.policy_version, (None, 0))[0]
    trainer.answer = {
        "epoch": run.epoch,
        "trainer_version": run.trainer_version,
        "policy_version": run.policy_version,
        "lineage": run.lineage,
        "weights": weights,
    }
    run.record(
        "trainer_opened",
        trainer=body["trainer"],
        epoch=run.epoch,
        resumed_from=at,
        lineage=run.lineage,
        policy_version=run.policy_version,
    )
    return trainer.answer


def _go_on(run: RunState, at: int, mode: str, force: bool, behind_at: int | None) -> None:
    """From which version, and what becomes of the rest."""
    latest = run.policy_version
    whole = run.next_buffer == latest + 1
    missing = next((version for version in range(at, latest) if version not in run.batches), None)
    if at > latest + 1 or (at == latest + 1 and not whole):
        if not force:
            raise conflict("ledger_behind", f"the ledger has not reached version {at}", policy_version=latest)
    elif at < latest and missing is not None and not (mode == "rewind" and force):
        raise Problem(410, "batch_pruned", f"batch {missing} is not kept")
    if behind_at is not None:
        run.seq = max(run.seq, behind_at)
    if at == latest + 1 and whole:
        run.advance(None)
    elif at < latest and mode == "replay":
        run.trainer_version = at
    elif at != latest:
        _lay_out(run, at, is_rewind=at < latest)
        return
    else:
        run.trainer_version = at
    if behind_at is not None:
        _new_lineage(run, run.policy_version)


def _new_lineage(run: RunState, to: int) -> None:
    run.lineage += 1
    run.rewinds.append((run.lineage, to))


def _lay_out(run: RunState, at: int, *, is_rewind: bool) -> None:
    """A rewind or a forced resume: V = T = H = ``at``, and all entries placed anew."""
    pieces = _pieces(run)
    finished: list[Entry] = []
    if is_rewind:
        for version in sorted(version for version in run.batches if version >= at):
            finished += run.batches.pop(version)
        run.totals["trained"] -= len(finished) + len(pieces)
        run.oldest_kept = min(run.oldest_kept, at)
        run.gaps = [(first, min(past, at)) for first, past in run.gaps if first < at]
        run.versions = {version: known for version, known in run.versions.items() if version <= at}
        run.final_batches = {version for version in run.final_batches if version < at}
    else:
        run.forget(pieces)
        run.gaps.append((run.next_buffer, at))
    in_tables = [entry for entry in run.tables.entries() if entry.state == "occupied"]
    finished += [entry for entry in in_tables if is_rewind or not entry.streamed]
    reserved = run.tables.reserved()
    _new_lineage(run, at)
    run.policy_version = run.trainer_version = at
    run.versions.setdefault(at, (None, run.now_ms))
    for entry in finished:
        entry.state, entry.taken_at_ms, entry.streamed = "occupied", None, False
        if run.queue is not None:
            run.queue.follow(entry, "occupied")

    def leaves(entry: Entry) -> bool:
        return entry.newest_version > at if is_rewind else entry.version + run.eta < at

    leaving = [entry for entry in [*finished, *reserved] if leaves(entry)]
    staying_finished = [entry for entry in finished if not leaves(entry)]
    staying = [entry for entry in reserved if not leaves(entry)]
    for entry in leaving:
        run.mark_discarded(entry, "rewound" if is_rewind else "too_stale")
    for entry in run.tables.lay_out(at, staying_finished, staying):
        run.mark_discarded(entry, "too_stale")


def drain(run: RunState, body: Json) -> Json:
    """Admits nothing more, or again."""
    run.draining = body.get("drain", True)
    run.keep_queue = body.get("queue") == "keep"
    run.record("drain", drain=run.draining)
    return {"draining": run.draining, "finished": run.finished(), "reserved": len(run.tables.reserved())}
