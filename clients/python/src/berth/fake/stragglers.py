"""What is discarded because the trainer waits for it for too long (protocol.md, Stuck timeout)."""

from __future__ import annotations

from .entries import Entry
from .state import RunState

MINUTE_MS = 60_000


def trainer_calls(run: RunState) -> None:
    """The trainer asks for a batch. It stopped waiting if none had called for a minute."""
    trainer = run.trainer
    if run.clock - trainer.last_call > MINUTE_MS:
        trainer.waits_since = None
    trainer.last_call = run.clock


def free_the_stuck(run: RunState) -> None:
    """Gives up what buffer H waits for, if that takes too long."""
    due_at = fires_at(run)
    if due_at is None or due_at > run.clock:
        return
    holding_up = _reserved_in_next(run)
    most = run.config["stuck_max_reserved"]
    if most is not None and len(holding_up) > most:
        return
    run.stuck_fired = run.clock
    if not holding_up:
        oldest = min(run.tables.reserved(), key=lambda entry: (entry.aged_from, entry.place), default=None)
        if oldest is not None:
            run.discard(oldest, "stuck_timeout")
    while holding_up and not run.tables.is_ready(run.next_buffer):
        run.discard(holding_up[0], "stuck_timeout")
        holding_up = _reserved_in_next(run)


def fires_at(run: RunState) -> int | None:
    """When the timeout fires if nothing changes, on the run's clock; None while its own clock does not run."""
    trainer, timeout = run.trainer, run.config["stuck_timeout_ms"]
    at_rest = run.trainer_version == run.policy_version == run.next_buffer
    state = run.tables.state(run.next_buffer) if at_rest else None
    if state != "stuck":
        run.stuck_since = None
    elif run.stuck_since is None:
        run.stuck_since = run.clock
    calls = run.trainer_waiting > 0 or run.clock - trainer.last_call <= MINUTE_MS
    if timeout is None or trainer.waits_since is None or not calls:
        return None
    if run.stuck_since is not None:
        since = run.stuck_since
    elif state == "pending" and run.blocked_for_everybody() is not None:
        since = run.last_admission
    else:
        return None
    return max(since, trainer.waits_since, run.stuck_fired) + int(timeout)


def _reserved_in_next(run: RunState) -> list[Entry]:
    return [entry for entry in run.tables.reserved() if entry.buffer == run.next_buffer]
