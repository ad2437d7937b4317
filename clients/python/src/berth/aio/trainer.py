"""The trainer, for asyncio: as :mod:`berth.trainer`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from .. import models as m
from .._call import Call
from .._opening import Opening
from .._standing import Standing
from ..trainer import WAIT_MS

if TYPE_CHECKING:
    from .run import Run

T = TypeVar("T")


class Trainer(Standing):
    """A trainer session, open inside its ``async with`` block. Made by :meth:`berth.aio.Run.trainer`."""

    def __init__(self, run: Run, opening: Opening) -> None:
        super().__init__(opening)
        self.run = run
        """The run."""

    async def __aenter__(self) -> Trainer:
        call = self._opening_call(self.run._calls)
        if call is not None:
            self._opened(await self._send(call))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    async def __aiter__(self) -> AsyncIterator[m.Batch]:
        while True:
            self._refuse_unpublished()
            answer = await self.next_batch(wait_ms=WAIT_MS)
            if answer.batch is not None:
                yield answer.batch
            elif answer.finished:
                return

    async def stream(self, *, min_entries: int = 1, max_entries: int | None = None) -> AsyncIterator[m.Batch]:
        """As :meth:`berth.Trainer.stream`."""
        offset = 0
        while True:
            self._refuse_unpublished()
            answer = await self.next_piece(offset, min_entries=min_entries, max_entries=max_entries, wait_ms=WAIT_MS)
            piece = answer.batch
            if piece is not None:
                offset = 0 if piece.complete else offset + len(piece)
                yield piece
            elif answer.finished:
                return

    async def next_batch(self, *, wait_ms: int = 0) -> m.NextBatch:
        """As :meth:`berth.Trainer.next_batch`."""
        return self._taken(await self._send(self.run._calls.take(self.epoch, self.trainer_version, wait_ms)))

    async def next_piece(
        self, from_offset: int, *, min_entries: int = 1, max_entries: int | None = None, wait_ms: int = 0
    ) -> m.NextBatch:
        """As :meth:`berth.Trainer.next_piece`."""
        call = self.run._calls.stream(self.epoch, self.trainer_version, from_offset, min_entries, max_entries, wait_ms)
        return self._taken(await self._send(call))

    async def publish(self, weights: str | None = None, *, version: int | None = None) -> m.Published:
        """As :meth:`berth.Trainer.publish`."""
        version = self.trainer_version + 1 if version is None else version
        return self._published(version, await self._send(self.run._calls.publish(self.epoch, version, weights)))

    async def checkpoint(self, version: int | None = None) -> int | None:
        """As :meth:`berth.Trainer.checkpoint`."""
        version = self.trainer_version if version is None else version
        return await self._send(self.run._calls.checkpoint(self.epoch, version))

    async def _send(self, call: Call[T]) -> T:
        return await self.run._send(call)
