"""A run: its workers and trainer, its prompts, and everything there is to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from . import looking
from . import models as m
from ._call import Call, Memory
from ._calls import RunCalls
from ._feeding import PromptLike, pages
from ._opening import Opening
from ._releasing import Releases
from ._reserving import weights_of
from ._sender import Endpoint, Sender
from .errors import EventsPruned
from .trainer import Trainer
from .worker import Worker

T = TypeVar("T")


class Run:
    """A run on a server. Made by :meth:`berth.Client.run`. Safe to use from many threads."""

    def __init__(self, endpoint: Endpoint, sender: Sender, name: str, memory: Memory) -> None:
        self.name = name
        """The run's name."""
        self._endpoint = endpoint
        self._sender = sender
        self._memory = memory
        self._calls = RunCalls(name)

    # Processes.

    def worker(self, name: str, *, session: str | None = None) -> Worker:
        """A rollout or reward process of this name, to be used in a ``with`` block. ``session`` is new unless it is given."""
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
        """The trainer process, to be used in a ``with`` block; it fences the one before.

        ``resume_from`` is the version that its checkpoint holds; it may be left out only before the first publish. From an older
        one, ``mode`` ``replay`` gives the batches since then again, as they were; ``rewind`` abandons the versions after it.
        ``force`` goes on although the ledger lacks what it needs.
        """
        return Trainer(self, Opening(name, session, resume_from, mode, force))

    def join_trainer(self, *, epoch: int, trainer_version: int) -> Trainer:
        """Another rank of the trainer whose session is open: it shares rank 0's ``epoch``, and fences nobody.

        Each rank publishes to go on to the next batch; rank 0 first, since a version's reference is that of who publishes it first
        or names one where there is none yet, and workers load the version as soon as it is out.
        """
        return Trainer(self, Opening("rank", epoch=epoch, trainer_version=trainer_version))

    # The run.

    def status(self) -> m.RunStatus:
        """The run in numbers."""
        return self._send(self._calls.status())

    def configure(self, **changes: int | None) -> m.RunStatus:
        """Changes ``lease_ms``, ``max_concurrency``, ``reservation_timeout_ms``, ``stuck_timeout_ms``, ``stuck_max_reserved`` or
        ``keep_batches``; None unsets a limit."""
        return self._send(self._calls.configure(changes))

    def delete(self) -> None:
        """Removes the run. Its name keeps its sequence number, so that its old processes are refused by a new run of that name."""
        self._send(self._calls.delete())

    def drain(self, *, queue: str | None = None) -> m.Drain:
        """Admits nothing more and lets finish what is there; ``queue="keep"`` leaves queued prompts where they are."""
        return self._send(self._calls.drain(True, queue))

    def undrain(self) -> m.Drain:
        """Admits again."""
        return self._send(self._calls.drain(False, None))

    # Prompts.

    def feed(self, prompts: Iterable[PromptLike], *, offset: int = 0) -> int:
        """Feeds prompts, of which the first is number ``offset`` of the data, in pages; returns how many were ever fed.

        Safe to repeat from the start of the data: what was fed before is ignored. ``prompts`` are :class:`Prompt`, names, or
        objects of ``id``, ``data`` and ``expected_tokens``.
        """
        fed = offset
        for start, page in pages(prompts, offset):
            fed = self._send(self._calls.feed(start, page))
        return fed

    def append(self, prompts: Iterable[PromptLike]) -> int:
        """Feeds prompts behind all others. Not safe to repeat, and therefore not retried: rather use :meth:`feed`."""
        fed = 0
        for _, page in pages(prompts, 0):
            fed = self._send(self._calls.feed(None, page))
        return fed

    def prompts(self, *, state: str | None = None, after: Any = None, limit: int | None = None) -> m.PromptPage:
        """A page of the prompt queue, with the counts by state."""
        return self._send(self._calls.prompts(state, after, limit))

    # Weights.

    def weights(self, *, after: m.Weights | int | None = None, wait_ms: int = 0) -> m.Weights:
        """The latest weights, once they are others than ``after`` or ``wait_ms`` (at most 60,000) is over."""
        return weights_of(self._latest(after, wait_ms))

    def _latest(self, after: m.Weights | int | None, wait_ms: int) -> m.LatestVersion:
        version = after.version if isinstance(after, m.Weights) else after
        lineage = after.lineage if isinstance(after, m.Weights) else None
        return self._send(self._calls.latest(version, lineage, wait_ms))

    def publish_initial(self, weights: str, *, epoch: int | None = None) -> m.Published:
        """Says where the weights of the run's ``initial_version`` are. ``epoch`` is the trainer's, once there was one."""
        return self._send(self._calls.publish(epoch, self.status().config.initial_version, weights))

    # Entries.

    def discard(
        self, entry: m.Trajectory | str, reason: str = "filtered", *, note: str | None = None, requeue: bool = False
    ) -> m.Discarded:
        """Discards an entry that no batch has taken: filters a finished one, gives up a reserved one."""
        id = entry if isinstance(entry, str) else entry.id
        return self._send(self._calls.discard(id, {}, reason, note, requeue))

    def trajectory(self, id: str) -> m.Trajectory:
        """One entry."""
        return self._send(self._calls.trajectory(id))

    def trajectories(self, *, worker: str | None = None, state: str | None = None) -> Iterator[m.Trajectory]:
        """The entries that are ``reserved`` (the default), ``occupied`` or ``taken``, of one worker or of all."""
        return self._all(lambda after: self._calls.trajectories(after, worker, state))

    # Looking.

    def explain(self) -> looking.Explanation:
        """Why the trainer waits."""
        return self._send(self._calls.explain())

    def buffers(self, *, slots: bool = False) -> looking.Buffers:
        """The open buffers; with ``slots`` what is in each slot."""
        return self._send(self._calls.buffers(slots))

    def batch(self, version: int, *, from_offset: int | None = None, max_entries: int | None = None) -> m.Batch:
        """A batch that was taken and is kept, whole or a part of it."""
        return self._send(self._calls.batch(version, from_offset, max_entries))

    def batches(self) -> Iterator[looking.BatchSummary]:
        """The kept batches, oldest first."""
        return self._all(self._calls.batches)

    def workers(self) -> Iterator[looking.WorkerStatus]:
        """The workers and their sessions, by name."""
        return self._all(self._calls.workers)

    def distribution(self) -> looking.Distribution:
        """What was trained, filtered and discarded, by length and staleness."""
        return self._send(self._calls.distribution())

    def events(self, *, after: int = 0, trajectory: str | None = None) -> Iterator[looking.Event]:
        """The event log behind sequence number ``after``, up to its end."""
        return self._all(lambda next: self._calls.events(next or after, None, trajectory, 0))

    def follow(self, *, after: int = 0, wait_ms: int = 30_000, until_finished: bool = False) -> Iterator[looking.Event]:
        """The event log behind ``after``; at its end it waits for more, for ever. Each event comes once, whatever is restarted.

        With ``until_finished`` it ends when the run is finished and all events up to then were given.
        """
        while True:
            events, more = self._send(self._calls.events(after, None, None, wait_ms))
            for event in events:
                after = event.seq
                yield event
            if until_finished and more is None:
                # The step that finishes a run is an event, which ends the wait; what is logged until this answer is given first.
                status = self.status()
                if status.finished and status.seq <= after:
                    return

    def released(
        self, *, after: int | None = None, wait_ms: int = 30_000, until_finished: bool = False
    ) -> Iterator[looking.Released]:
        """The entries that nobody will read any more, each once, as the events say it: what their payloads refer to can be deleted.

        A discard alone does not say it: a worker that was only slow may still hand in an entry that was discarded as
        ``lease_expired``, ``abandoned``, ``timed_out`` or ``stuck_timeout``, members and all, also after a rewind. It is named once the
        last batch that it might be in is not kept, or with ``until_finished`` at the end.

        It waits, or ends, as :meth:`follow` does. Without ``after`` it begins at the oldest event that is kept, and passes over events
        that were trimmed before it came to them: what they would have named is not.
        """
        releases = Releases(self.status())
        seen = after or 0
        while True:
            try:
                for event in self.follow(after=seen, wait_ms=wait_ms, until_finished=until_finished):
                    seen = event.seq
                    yield from releases.see(event)
                yield from releases.rest()
                return
            except EventsPruned as pruned:
                if after is not None or pruned.first_seq is None:
                    raise
                seen = pruned.first_seq - 1

    def _all(self, page: Callable[[Any], Call[tuple[list[T], Any]]]) -> Iterator[T]:
        after: Any = None
        while True:
            items, after = self._send(page(after))
            yield from items
            if after is None:
                return

    def _send(self, call: Call[T]) -> T:
        return self._sender.send(call, self._memory)
