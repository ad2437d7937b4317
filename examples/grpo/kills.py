"""Which processes a job kills, and when: at which event of the run."""

from __future__ import annotations

from dataclasses import dataclass

import berth


@dataclass(frozen=True)
class Kill:
    """`victim` is killed once the run's log has an event of this type about this version."""

    victim: str
    event: str
    version: int

    def is_due(self, event: berth.Event) -> bool:
        """Whether this is the event."""
        return (event.type, event.version) == (self.event, self.version)


def all_kinds(versions: int, checkpoint_every: int, *, stream: bool) -> list[Kill]:
    """The trainer twice, a rollout process three times and the server once, spread over the job.

    The trainer is killed in the middle of a batch, some versions behind its checkpoint: it trains those again. And right after
    a checkpoint: it goes on from there.
    """

    def at(share: float) -> int:
        return round(share * versions)

    def checkpoint(share: float) -> int:
        return max(1, round(at(share) / checkpoint_every)) * checkpoint_every

    behind = checkpoint(0.3) + max(1, 2 * checkpoint_every // 3)
    return [
        Kill("rollout-0", "publish", at(0.1)),
        Kill("trainer", "stream" if stream else "take", behind),
        Kill("rollout-1", "publish", at(0.5)),
        Kill("server", "publish", at(0.6)),
        Kill("rollout-2", "publish", at(0.7)),
        Kill("trainer", "checkpoint", checkpoint(0.8)),
    ]
