"""The two sides of the queue of :mod:`berth.adapters.verl`: a worker's session, a trainer's, and the files between them. Imports nothing of verl."""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import berth
import berth.aio


@dataclass(frozen=True)
class Settings:
    """Where the ledger and the samples are, and the run in the ledger's terms. ``directory`` is one that all processes share."""

    url: str
    run: str
    directory: str
    batch_size: int
    samples_per_step: int
    max_staleness: int
    group_size: int = 1
    token: str | None = None
    limits: dict[str, int] = field(default_factory=dict)

    def configuration(self) -> dict[str, Any]:
        """The run's. The samples that are too few for a last batch are not trained by verl; the ledger discards them."""
        sizes = {"batch_size": self.batch_size, "max_staleness": self.max_staleness, "group_size": self.group_size}
        return {**sizes, "final_batch": "discard", **self.limits}


@dataclass
class Filling:
    """A sample that is generated for a reservation; ``kept`` once it was handed in and the ledger has it."""

    slot: berth.aio.Slot
    sample: Any
    kept: bool = False


#: The sample of the task that runs: verl's `put_sample` is given nothing but its bytes.
filling_now: ContextVar[Filling] = ContextVar("filling")


class RolloutSide:
    """The rollouter's session."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._worker: berth.aio.Worker | None = None
        self._weights = berth.Weights(version=0, lineage=0)
        self._reserved: dict[str, berth.aio.Slot] = {}
        self._turn = asyncio.Lock()
        self._ended = False

    async def hold(self, weights: berth.Weights) -> None:
        """The engines have these from now on. Opens the session with the first, before anything is generated or trained."""
        self._weights = weights
        if self._worker is None and not self._ended:
            client = berth.aio.connect(self._settings.url, token=self._settings.token)
            run = await client.run(self._settings.run, **self._settings.configuration())
            await run.undrain()
            self._worker = await run.worker("rollouter").__aenter__()

    def _open_worker(self) -> berth.aio.Worker:
        if self._worker is None:
            raise berth.NotOpen("the rollouter was told of no weights yet, or has ended")
        return self._worker

    async def reserve(self, sample_id: str) -> None:
        """Returns when there is a place for this sample. One waits at a time, so that places go in the order of the prompts."""
        self._reserved[sample_id] = await self._reserve(sample_id)

    async def reserved(self, sample_id: str) -> berth.aio.Slot:
        """The place of this sample: the one that was reserved, or another if that was for nothing."""
        return self._reserved.pop(sample_id, None) or await self._reserve(sample_id)

    async def _reserve(self, sample_id: str) -> berth.aio.Slot:
        async with self._turn:
            slots = self._open_worker().reserve(lambda: self._weights, prompts=[sample_id])
            async with aclosing(slots):  # type: ignore[type-var]
                async for slot in slots:
                    return slot
        raise berth.BerthError(f"run {self._settings.run} is finished: there is no place for {sample_id}")

    async def put(self, payload: bytes) -> bool:
        filling = filling_now.get(None)
        if filling is None:
            raise berth.BerthError("a sample without a reservation: the rollouter must be berth.adapters.verl.Rollouter")
        worker, slot, batch = self._open_worker(), filling.slot, filling.sample.full_batch
        spans = [_span(batch, row) for row in range(len(batch))]
        if min((first for first, _ in spans if first is not None), default=slot.version) < slot.version:
            raise berth.BerthError(f"{slot.id} is of version {slot.version}, but the engine says of it: {spans}")
        # The engines have weights a moment before they are published.
        newest = max((last for _, last in spans if last is not None), default=0)
        while worker.policy_version < newest:
            await worker.weights(after=newest - 1, wait_ms=10_000)
        path = Path(self._settings.directory).absolute() / f"{uuid.uuid4().hex}.sample"
        await asyncio.to_thread(write, path, payload)
        members = [_member(batch, row, span) for row, span in enumerate(spans)]
        meta = {"sample_id": filling.sample.sample_id, "epoch": filling.sample.epoch}
        if self._settings.group_size > 1:
            occupied = await slot.occupy(payload=path.as_uri(), meta=meta, members=members)
        else:
            (one,) = members
            for segment in _segments(spans[0], one.tokens or 0):
                await slot.segment(segment.version, segment.from_token)
            occupied = await slot.occupy(payload=path.as_uri(), meta=meta, reward=one.reward, tokens=one.tokens)
        filling.kept = occupied.kept
        if not occupied.kept:
            path.unlink()
        return filling.kept

    async def end(self) -> None:
        """Nothing more is generated. What is reserved still is given up."""
        self._ended = True
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.__aexit__(None, None, None)


class TrainSide:
    """The trainer's session. For one thread at a time."""

    def __init__(self, settings: Settings, run: berth.Run, version: int) -> None:
        self._run = run
        self.trainer = run.trainer(resume_from=version).__enter__()
        size = settings.samples_per_step
        self._pieces = self.trainer.stream(min_entries=size, max_entries=size)
        self._in_hand: list[berth.Trajectory] = []
        self._files: dict[int, list[Path]] = {}
        self._lock = threading.Lock()
        self._is_over = False

    def next_sample(self) -> tuple[bytes | None, int]:
        with self._lock:
            while not self._in_hand:
                piece = None if self._is_over else next(self._pieces, None)
                # verl neither syncs nor publishes a last batch that is too short: nothing more is asked for after it.
                self._is_over = piece is None or piece.final
                if piece is None:
                    return None, 0
                self._in_hand = list(piece)
                self._files.setdefault(piece.version, []).extend(_path(entry) for entry in piece)
            payload = _path(self._in_hand[0]).read_bytes()
            del self._in_hand[0]
            return payload, len(self._in_hand)

    def publish(self, version: int) -> None:
        if self.trainer.trainer_version < version:
            self.trainer.publish(version=version)
            self._forget(self._run.status().oldest_kept)

    def checkpoint(self, version: int) -> None:
        self._forget(self.trainer.checkpoint(version))

    def _forget(self, oldest_kept: int | None) -> None:
        """Removes the files of batches that the ledger does not keep any more."""
        oldest = self.trainer.trainer_version if oldest_kept is None else oldest_kept
        for version in [version for version in self._files if version < oldest]:
            for path in self._files.pop(version):
                path.unlink(missing_ok=True)


def _span(batch: Any, row: int) -> tuple[int | None, int | None]:
    """The first and the last version that generated this response, where the engine says so."""
    first, last = (batch.non_tensor_batch.get(name) for name in ("min_global_steps", "max_global_steps"))
    return (None if first is None else first[row], None if last is None else last[row])


def _member(batch: Any, row: int, span: tuple[int | None, int | None]) -> berth.MemberResult:
    """One response, as the ledger is told of it."""
    tensors = batch.batch
    tokens = int(tensors["attention_mask"][row, -tensors["responses"].shape[-1] :].sum())
    reward = float(tensors["rm_scores"][row].sum()) if "rm_scores" in tensors.keys() else None
    return berth.MemberResult(row, reward, tokens, version=span[0], segments=_segments(span, tokens))


def _segments(span: tuple[int | None, int | None], tokens: int) -> list[berth.Segment]:
    """What newer weights generated. verl does not say from which token on: surely the last."""
    first, last = span
    if first is None or last is None or first >= last or tokens < 2:
        return []
    return [berth.Segment(version=int(last), from_token=tokens - 1)]


def _path(entry: berth.Trajectory) -> Path:
    if entry.payload is None:
        raise berth.BerthError(f"{entry.id} has no payload: it is of another job")
    return Path(unquote(urlparse(entry.payload).path))


def write(path: Path, data: bytes) -> None:
    """Whole or not at all, and on disk when it returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
