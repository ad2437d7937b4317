"""Which entries nobody will read any more, from the events of a run. Knows no I/O."""

from __future__ import annotations

from typing import Any

from ._reasons import LATE_REASONS
from .looking import Event, Released
from .models import RunStatus


class Releases:
    """What the events so far released, each entry once."""

    def __init__(self, status: RunStatus) -> None:
        self._max_staleness = status.config.max_staleness
        self._newest = status.policy_version
        #: What may come back, with the last buffer in which it might be trained.
        self._lost: dict[str, tuple[int, Released]] = {}

    def see(self, event: Event) -> list[Released]:
        """What this event releases."""
        # Resuming raises the version as well, by one or by any number. A rewind lowers it, but an entry may be lost after it that was
        # reserved before it: to take the higher one only releases later.
        self._newest = max(self._newest, event.raw.get("policy_version", 0) if event.type == "trainer_opened" else 0)
        released = []
        for effect in event.raw.get("effects", ()):
            kind, id = effect["effect"], effect["id"]
            if kind == "reserved":
                self._lost.pop(id, None)
            elif kind in ("discarded", "pruned"):
                each = Released(id=id, payloads=_payloads(effect), reason=effect.get("reason"))
                if each.reason in LATE_REASONS:
                    # No older than the newest version: its own need not be known.
                    self._lost[id] = self._newest + self._max_staleness, each
                else:
                    released.append(each)
        if event.version is not None and event.type == "publish":
            self._newest = max(self._newest, event.version)
        if event.version is not None and event.type == "prune":
            # No rewind goes back to it any more.
            released += self._take_lost(through=event.version)
        return released

    def rest(self) -> list[Released]:
        """What could have come back, once the run is finished."""
        return self._take_lost(through=None)

    def _take_lost(self, through: int | None) -> list[Released]:
        gone = [id for id, (last, _) in self._lost.items() if through is None or last <= through]
        return [self._lost.pop(id)[1] for id in gone]


def _payloads(effect: dict[str, Any]) -> tuple[str, ...]:
    of_entry = effect.get("payload")
    return (*([] if of_entry is None else [of_entry]), *effect.get("payloads", ()))
