"""The trainer: takes batches, publishes versions, and goes on from a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from . import models as m
from ._call import Call
from ._opening import Opening
from ._standing import Standing

if TYPE_CHECKING:
    from .run import Run

T = TypeVar("T")

#: How long one call for a batch waits; the loops repeat it.
WAIT_MS = 30_000


class Trainer(Standing):
    """A trainer session, open inside its ``with`` block. Made by :meth:`berth.Run.trainer`.

    Iterating gives whole batches until the run is finished; each must be published before the next is asked for.
    """

    def __init__(self, run: Run, opening: Opening) -> None:
        super().__init__(opening)
        self.run = run
        """The run."""

    def __enter__(self) -> Trainer:
        call = self._opening_call(self.run._calls)
        if call is not None:
            self._opened(self._send(call))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def __iter__(self) -> Iterator[m.Batch]:
        while True:
            self._refuse_unpublished()
            answer = self.next_batch(wait_ms=WAIT_MS)
            if answer.batch is not None:
                yield answer.batch
            elif answer.finished:
                return

    def stream(self, *, min_entries: int = 1, max_entries: int | None = None) -> Iterator[m.Batch]:
        """The batches in pieces of ``min_entries`` to ``max_entries`` entries, as they finish, until the run is finished.

        A piece that is ``complete`` is the last of its batch, which must be published before the next piece is asked for; it may
        be empty. A session that resumes is given the pieces of an unfinished batch from the first on.
        """
        offset = 0
        while True:
            self._refuse_unpublished()
            answer = self.next_piece(offset, min_entries=min_entries, max_entries=max_entries, wait_ms=WAIT_MS)
            piece = answer.batch
            if piece is not None:
                offset = 0 if piece.complete else offset + len(piece)
                yield piece
            elif answer.finished:
                return

    def next_batch(self, *, wait_ms: int = 0) -> m.NextBatch:
        """The batch that trains ``trainer_version``, whole, or why there is none yet (after ``wait_ms``, at most 60,000)."""
        return self._taken(self._send(self.run._calls.take(self.epoch, self.trainer_version, wait_ms)))

    def next_piece(
        self, from_offset: int, *, min_entries: int = 1, max_entries: int | None = None, wait_ms: int = 0
    ) -> m.NextBatch:
        """The piece of the batch that follows its first ``from_offset`` entries. Safe to repeat: nothing is skipped."""
        call = self.run._calls.stream(self.epoch, self.trainer_version, from_offset, min_entries, max_entries, wait_ms)
        return self._taken(self._send(call))

    def publish(self, weights: str | None = None, *, version: int | None = None) -> m.Published:
        """Publishes the version that the batch was trained into (or ``version``), and where its weights are.

        ``weights`` is a reference of at most 2 KiB. Publishing a version again changes nothing.
        """
        version = self.trainer_version + 1 if version is None else version
        return self._published(version, self._send(self.run._calls.publish(self.epoch, version, weights)))

    def checkpoint(self, version: int | None = None) -> int | None:
        """Says that a durable checkpoint of ``version`` (by default ``trainer_version``) makes older batches unnecessary.

        The answer is the oldest batch that is still kept, if any is.
        """
        version = self.trainer_version if version is None else version
        return self._send(self.run._calls.checkpoint(self.epoch, version))

    def _send(self, call: Call[T]) -> T:
        return self.run._send(call)
