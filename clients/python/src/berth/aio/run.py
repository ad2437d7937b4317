"""A run, for asyncio: as :mod:`berth.run`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar

from .. import looking
from .. import models as m
from .._call import Call, Memory
from .._calls import RunCalls
from .._feeding import PromptLike, pages
from .._opening import Opening
from .._releasing import Releases
from .._reserving import weights_of
from .._sender import AsyncSender, Endpoint
from ..errors import EventsPruned
from .trainer import Trainer
from .worker import Worker

T = TypeVar("T")


class Run:
    """A run on a server. Made by :meth:`berth.aio.Client.run`."""

    def __init__(self, endpoint: Endpoint, sender: AsyncSender, name: str, memory: Memory) -> None:
        self.name = name
        """The run's name."""
        self._endpoint = endpoint
        self._sender = sender
        self._memory = memory
        self._calls = RunCalls(name)

    # Processes.

    def worker(self, name: str, *, session: str | None = None) -> Worker:
        """As :meth:`berth.Run.worker`."""
        return Worker(self, name, session)

    def trainer(
        self,
        name: str = "trainer",
        *,
        resume_from: int | None = None,
        mode: m.ResumeMode = "replay",
        force: bool = False,
        session: str | None = None,
    ) -> Trainer:
        """As :meth:`berth.Run.trainer`, to be used in an ``async with`` block."""
        return Trainer(self, Opening(name, session, resume_from, mode, force))

    def join_trainer(self, *, epoch: int, trainer_version: int) -> Trainer:
        """As :meth:`berth.Run.join_trainer`."""
        return Trainer(self, Opening("rank", epoch=epoch, trainer_version=trainer_version))

    # The run.

    async def status(self) -> m.RunStatus:
        """As :meth:`berth.Run.status`."""
        return await self._send(self._calls.status())

    async def configure(self, **changes: int | None) -> m.RunStatus:
        """As :meth:`berth.Run.configure`."""
        return await self._send(self._calls.configure(changes))

    async def delete(self) -> None:
        """As :meth:`berth.Run.delete`."""
        await self._send(self._calls.delete())

    async def drain(self, *, queue: str | None = None) -> m.Drain:
        """As :meth:`berth.Run.drain`."""
        return await self._send(self._calls.drain(True, queue))

    async def undrain(self) -> m.Drain:
        """As :meth:`berth.Run.undrain`."""
        return await self._send(self._calls.drain(False, None))

    # Prompts.

    async def feed(self, prompts: Iterable[PromptLike], *, offset: int = 0) -> int:
        """As :meth:`berth.Run.feed`."""
        fed = offset
        for start, page in pages(prompts, offset):
            fed = await self._send(self._calls.feed(start, page))
        return fed

    async def append(self, prompts: Iterable[PromptLike]) -> int:
        """As :meth:`berth.Run.append`."""
        fed = 0
        for _, page in pages(prompts, 0):
            fed = await self._send(self._calls.feed(None, page))
        return fed

    async def prompts(self, *, state: str | None = None, after: Any = None, limit: int | None = None) -> m.PromptPage:
        """As :meth:`berth.Run.prompts`."""
        return await self._send(self._calls.prompts(state, after, limit))

    # Weights.

    async def weights(self, *, after: m.Weights | int | None = None, wait_ms: int = 0) -> m.Weights:
        """As :meth:`berth.Run.weights`."""
        return weights_of(await self._latest(after, wait_ms))

    async def _latest(self, after: m.Weights | int | None, wait_ms: int) -> m.LatestVersion:
        version = after.version if isinstance(after, m.Weights) else after
        lineage = after.lineage if isinstance(after, m.Weights) else None
        return await self._send(self._calls.latest(version, lineage, wait_ms))

    async def publish_initial(self, weights: str, *, epoch: int | None = None) -> m.Published:
        """As :meth:`berth.Run.publish_initial`."""
        return await self._send(self._calls.publish(epoch, (await self.status()).config.initial_version, weights))

    # Entries.

    async def discard(
        self, entry: m.Trajectory | str, reason: str = "filtered", *, note: str | None = None, requeue: bool = False
    ) -> m.Discarded:
        """As :meth:`berth.Run.discard`."""
        id = entry if isinstance(entry, str) else entry.id
        return await self._send(self._calls.discard(id, {}, reason, note, requeue))

    async def trajectory(self, id: str) -> m.Trajectory:
        """As :meth:`berth.Run.trajectory`."""
        return await self._send(self._calls.trajectory(id))

    def trajectories(self, *, worker: str | None = None, state: str | None = None) -> AsyncIterator[m.Trajectory]:
        """As :meth:`berth.Run.trajectories`."""
        return self._all(lambda after: self._calls.trajectories(after, worker, state))

    # Looking.

    async def explain(self) -> looking.Explanation:
        """As :meth:`berth.Run.explain`."""
        return await self._send(self._calls.explain())

    async def buffers(self, *, slots: bool = False) -> looking.Buffers:
        """As :meth:`berth.Run.buffers`."""
        return await self._send(self._calls.buffers(slots))

    async def batch(self, version: int, *, from_offset: int | None = None, max_entries: int | None = None) -> m.Batch:
        """As :meth:`berth.Run.batch`."""
        return await self._send(self._calls.batch(version, from_offset, max_entries))

    def batches(self) -> AsyncIterator[looking.BatchSummary]:
        """As :meth:`berth.Run.batches`."""
        return self._all(self._calls.batches)

    def workers(self) -> AsyncIterator[looking.WorkerStatus]:
        """As :meth:`berth.Run.workers`."""
        return self._all(self._calls.workers)

    async def distribution(self) -> looking.Distribution:
        """As :meth:`berth.Run.distribution`."""
        return await self._send(self._calls.distribution())

    def events(self, *, after: int = 0, trajectory: str | None = None) -> AsyncIterator[looking.Event]:
        """As :meth:`berth.Run.events`."""
        return self._all(lambda next: self._calls.events(next or after, None, trajectory, 0))

    async def follow(
        self, *, after: int = 0, wait_ms: int = 30_000, until_finished: bool = False
    ) -> AsyncIterator[looking.Event]:
        """As :meth:`berth.Run.follow`."""
        while True:
            events, more = await self._send(self._calls.events(after, None, None, wait_ms))
            for event in events:
                after = event.seq
                yield event
            if until_finished and more is None:
                # The step that finishes a run is an event, which ends the wait; what is logged until this answer is given first.
                status = await self.status()
                if status.finished and status.seq <= after:
                    return

    async def released(
        self, *, after: int | None = None, wait_ms: int = 30_000, until_finished: bool = False
    ) -> AsyncIterator[looking.Released]:
        """As :meth:`berth.Run.released`."""
        releases = Releases(await self.status())
        seen = after or 0
        while True:
            try:
                async for event in self.follow(after=seen, wait_ms=wait_ms, until_finished=until_finished):
                    seen = event.seq
                    for each in releases.see(event):
                        yield each
                for each in releases.rest():
                    yield each
                return
            except EventsPruned as pruned:
                if after is not None or pruned.first_seq is None:
                    raise
                seen = pruned.first_seq - 1

    async def _all(self, page: Callable[[Any], Call[tuple[list[T], Any]]]) -> AsyncIterator[T]:
        after: Any = None
        while True:
            items, after = await self._send(page(after))
            for item in items:
                yield item
            if after is None:
                return

    async def _send(self, call: Call[T]) -> T:
        return await self._sender.send(call, self._memory)
