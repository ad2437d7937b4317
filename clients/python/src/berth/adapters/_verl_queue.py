"""The queue of :mod:`berth.adapters.verl`: samples are files, of which the ledger has the references. Imports nothing of verl."""

from __future__ import annotations

import asyncio
import time
import uuid
from pathlib import Path
from typing import Any

import berth

from ._verl_sides import RolloutSide, Settings, TrainSide, write


class BerthMessageQueue:
    """Takes the place of verl's ``MessageQueueClient``. It carries settings only, and connects in the process that uses it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rollout = RolloutSide(settings)
        self._run: berth.Run | None = None
        self._train: TrainSide | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return BerthMessageQueue, (self.settings,)

    def _looking(self) -> berth.Run:
        if self._run is None:
            client = berth.connect(self.settings.url, token=self.settings.token)
            self._run = client.run(self.settings.run, **self.settings.configuration())
        return self._run

    # The rollouter's.

    async def put_sample(self, sample: bytes | None) -> bool:
        """Hands in the sample of the running task; whether the ledger keeps it. None says that nothing more comes."""
        if sample is None:
            await self.shutdown()
            await self.rollout.end()
            return True
        return await self.rollout.put(sample)

    async def shutdown(self) -> None:
        """Admits nothing more, and lets what is there be trained."""
        await asyncio.to_thread(self._looking().drain)

    # The trainer's.

    async def get_sample(self) -> tuple[bytes | None, int]:
        """The next sample of the batch, and how many of the same step are in hand; ``(None, 0)`` once the run is finished."""
        return await asyncio.to_thread(self.get_sample_sync)

    def get_sample_sync(self) -> tuple[bytes | None, int]:
        """As :meth:`get_sample`."""
        return self._training().next_sample()

    def publish(self, version: int) -> berth.Weights:
        """The engines have the weights of ``version``: it is published, by a session that the first call opens with it."""
        if self._train is None:
            self._train = TrainSide(self.settings, self._looking(), version)
        self._train.publish(version)
        return berth.Weights(version=version, lineage=self._train.trainer.lineage)

    def checkpoint(self, version: int) -> None:
        """The checkpoint of ``version`` is saved: the samples of older batches are removed."""
        self._training().checkpoint(version)

    def _training(self) -> TrainSide:
        if self._train is None:
            raise berth.NotOpen("the trainer has synced no weights yet: it must be berth.adapters.verl.Trainer")
        return self._train

    # Anybody's.

    def get_queue_size_sync(self) -> int:
        """How many finished samples no batch has taken."""
        return self._looking().status().occupied

    def finished_since(self, version: int) -> int:
        """How many samples are finished that ``version``'s weights were not trained on: in kept batches, in pieces of one, and in buffers."""
        status = self._looking().status()
        taken = max(0, status.next_buffer - version) * self.settings.batch_size
        return taken + sum(buffer.occupied for buffer in status.buffers)

    async def get_queue_size(self) -> int:
        """As :meth:`get_queue_size_sync`."""
        return await asyncio.to_thread(self.get_queue_size_sync)

    def get_statistics_sync(self) -> dict[str, Any]:
        """Counts since the run's creation, but ``queue_size``. ``dropped_samples`` are all that were discarded, finished or not."""
        status = self._looking().status()
        return {
            "queue_size": status.occupied,
            "total_produced": status.totals.occupied,
            "total_consumed": status.totals.trained,
            "dropped_samples": sum(status.totals.discarded.values()),
            "max_queue_size": self.settings.batch_size * (1 + self.settings.max_staleness),
        }

    async def get_statistics(self) -> dict[str, Any]:
        """As :meth:`get_statistics_sync`."""
        return await asyncio.to_thread(self.get_statistics_sync)

    async def clear_queue(self) -> None:
        """Clears nothing: verl calls it when a job has ended or failed, and what is finished is for the next start."""

    async def get_memory_usage(self) -> dict[str, Any]:
        """The samples that wait, and the size of all files: those of kept batches too."""
        size = sum(path.stat().st_size for path in Path(self.settings.directory).glob("*.sample"))
        waiting = await self.get_queue_size()
        return {"queue_samples": waiting, "estimated_memory_bytes": size, "estimated_memory_mb": size / 2**20}

    async def put_validate(self, data: bytes) -> None:
        """Leaves the results of a validation for the trainer."""
        name = f"{time.time_ns():020}-{uuid.uuid4().hex}.validation"
        await asyncio.to_thread(write, Path(self.settings.directory) / name, data)

    def get_validate_sync(self) -> bytes | None:
        """The oldest results of a validation that nobody has had, or None."""
        for path in sorted(Path(self.settings.directory).glob("*.validation")):
            data = path.read_bytes()
            path.unlink()
            return data
        return None
