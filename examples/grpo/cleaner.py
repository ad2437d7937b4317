"""The cleaner: follows the run's events, and deletes each file that nobody will read any more.

    python cleaner.py SETTINGS

It keeps nothing: started again, it reads the events from the first, and deletes what is already gone once more. It ends with the run.
"""

from __future__ import annotations

import sys
from typing import Any

import berth

from files import Files, delete
from settings import Settings

KEPT_WEIGHTS = 8
"""How many versions of the weights stay, for a rollout process that was slow to load what it was told of."""

MAY_COME_BACK = frozenset({"lease_expired", "abandoned", "stuck_timeout", "timed_out"})
"""For these reasons a reservation is discarded whose worker may only have been slow: it may still hand its work in."""


class Cleaner:
    """Which entries' files are still needed, by the events seen so far. A file is named by its entry's id."""

    def __init__(self, files: Files, max_staleness: int) -> None:
        self._files = files
        self._max_staleness = max_staleness
        self._needed: dict[str, int] = {}
        """The deadlines of the entries that are reserved, finished, or kept with their batch."""
        self._lost: dict[str, int] = {}
        """The deadlines of those that may come back until then."""
        self._draining = False

    @property
    def is_done(self) -> bool:
        """Whether no file is needed any more, and none will be."""
        return self._draining and not self._needed

    def see(self, event: berth.Event) -> None:
        """Deletes what this event makes unnecessary."""
        for effect in event.raw["effects"]:
            self._see_effect(effect)
        if event.type == "drain":
            self._draining = event.raw["drain"]
        if event.type == "publish" and event.version is not None:
            self._forget_lost(before=event.version)
            self._delete_weights(before=event.version - KEPT_WEIGHTS)

    def finish(self) -> None:
        """Deletes what could have come back: the run is over."""
        for id in self._lost:
            delete(self._files.payload(id))
        self._lost.clear()

    def _see_effect(self, effect: dict[str, Any]) -> None:
        id = effect["id"]
        if effect["effect"] == "reserved":
            self._needed[id] = effect["version"] + self._max_staleness
            self._lost.pop(id, None)
        elif effect["effect"] == "discarded" and effect["reason"] in MAY_COME_BACK:
            self._lost[id] = self._needed.pop(id)
        elif effect["effect"] in ("discarded", "pruned"):
            self._needed.pop(id)
            delete(effect.get("payload") or self._files.payload(id))

    def _forget_lost(self, before: int) -> None:
        for id in [id for id, deadline in self._lost.items() if deadline < before]:
            del self._lost[id]
            delete(self._files.payload(id))

    def _delete_weights(self, before: int) -> None:
        for path in self._files.weights.glob("*.npz"):
            if int(path.stem) < before:
                path.unlink(missing_ok=True)


def main(settings: Settings) -> None:
    cleaner = Cleaner(Files(settings), settings.max_staleness)
    for event in settings.connect().follow():
        cleaner.see(event)
        if cleaner.is_done:
            break
    cleaner.finish()


if __name__ == "__main__":
    main(Settings.load(sys.argv[1]))
