"""Many finished entries in few calls. Knows no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from . import models as m
from ._calls import Json
from ._finishing import may_have_arrived
from ._handing_in import HandIn, one_of_many
from ._holdings import Holdings
from ._reserving import is_over

#: The most entries that one call takes.
MOST_AT_ONCE = 1024


@dataclass(frozen=True)
class Page:
    """What goes into one call: entries of one lineage, and where they stand among all."""

    lineage: int | None
    positions: Sequence[int]
    items: Sequence[Json]


class Many:
    """One :meth:`berth.Worker.occupy_many`."""

    def __init__(self, holdings: Holdings, finished: Sequence[Mapping[str, Any]]) -> None:
        self._slots = {slot.id: slot for slot in holdings.open_slots()}
        self.handed: list[HandIn] = [one_of_many(holdings, self._slots.get(str(each["id"])), each) for each in finished]
        """All of them, in the order they were given."""
        self.lineages: list[int | None] = []
        """Under which each is handed in, in the same order."""
        self._results: dict[int, m.OccupyResult] = {}

    def pages(self) -> Iterator[Page]:
        """The calls: one for each lineage and 1,024 entries."""
        for lineage in dict.fromkeys(self.lineages):
            positions = [position for position, each in enumerate(self.lineages) if each == lineage]
            for start in range(0, len(positions), MOST_AT_ONCE):
                page = positions[start : start + MOST_AT_ONCE]
                yield Page(lineage, page, [self.handed[position].body for position in page])

    @contextmanager
    def handing_in(self, page: Page) -> Iterator[None]:
        """While the block runs, it is not known which of them have arrived: what is given up then may be finished."""
        slots = [slot for each in page.positions if (slot := self._slots.get(self.handed[each].id)) is not None]
        for slot in slots:
            slot._in_doubt = True
        in_doubt = False
        try:
            yield
        except BaseException as error:
            in_doubt = may_have_arrived(error)
            raise
        finally:
            for slot in slots:
                slot._in_doubt = in_doubt

    def answered(self, page: Page, results: list[m.OccupyResult]) -> None:
        """Takes in what became of a page; of what is over the worker lets go."""
        for position, result in zip(page.positions, results, strict=True):
            self._results[position] = result
            slot = self._slots.get(result.id)
            if slot is not None and is_over(result):
                slot._close()

    def results(self) -> list[m.OccupyResult]:
        """A result for each, in the order they were given."""
        return [self._results[position] for position in range(len(self.handed))]
