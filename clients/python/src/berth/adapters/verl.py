"""The ledger in place of the message queue of verl's fully asynchronous recipe (`verl.experimental.fully_async_policy`).

`docs/adapters.md` has the recipe's terms in Berth's. A batch of the ledger is what verl trains between two parameter syncs: ``ppo_mini_batch_size *
require_batches * trigger_parameter_sync_step`` samples, each the ``rollout.n`` responses of one prompt. :class:`TaskRunner` puts all
of it into a job; the samples are files, the ledger has their references. Not supported: ``use_dynamic_resource_scheduling``.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

import ray
from verl.experimental.fully_async_policy import fully_async_main
from verl.experimental.fully_async_policy.fully_async_rollouter import FullyAsyncRollouter
from verl.experimental.fully_async_policy.fully_async_trainer import FullyAsyncTrainer

import berth

from ._verl_queue import BerthMessageQueue
from ._verl_sides import Filling, RolloutSide, Settings, filling_now

__all__ = ["BerthMessageQueue", "Rollouter", "Settings", "TaskRunner", "Trainer", "settings_of"]

#: What `async_training.berth` may say of the run besides `max_staleness`.
RUN_FIELDS = ("lease_ms", "reservation_timeout_ms", "stuck_timeout_ms", "stuck_max_reserved", "keep_batches")


def settings_of(config: Any) -> Settings:
    """From a recipe's configuration, of which ``async_training.berth`` says at least ``url``, ``run`` and ``directory``."""
    recipe = config.async_training
    own = recipe.berth
    if recipe.get("use_dynamic_resource_scheduling", False):
        raise ValueError("use_dynamic_resource_scheduling: its replicas get new weights at times of their own")
    unknown = set(own) - {"url", "run", "directory", "token", "max_staleness", *RUN_FIELDS}
    if unknown:
        raise ValueError(f"async_training.berth knows no {', '.join(sorted(map(str, unknown)))}")
    samples_per_step = config.actor_rollout_ref.actor.ppo_mini_batch_size * recipe.require_batches
    return Settings(
        url=own.url,
        run=own.run,
        directory=own.directory,
        batch_size=samples_per_step * recipe.trigger_parameter_sync_step,
        samples_per_step=samples_per_step,
        # The part of a batch that `staleness_threshold` allows is held by the rollouter, which goes on counting.
        max_staleness=own.get("max_staleness", math.ceil(recipe.staleness_threshold)),
        group_size=config.actor_rollout_ref.rollout.n,
        token=own.get("token"),
        limits={name: own[name] for name in RUN_FIELDS if own.get(name) is not None},
    )


class _ReservingQueue(asyncio.Queue[Any]):
    """The rollouter's pending prompts. Getting one, which is when its generation begins, is getting a place for it."""

    def __init__(self, rollout: RolloutSide, maxsize: int) -> None:
        super().__init__(maxsize)
        self._rollout = rollout
        self._job = uuid.uuid4().hex[:8]

    async def get(self) -> Any:
        sample = await super().get()
        if sample is not None:
            # verl numbers the samples of a resumed job as it did those of the last: in one batch they would be one group.
            sample.sample_id = sample.sample_id.replace("sample_", f"sample_{self._job}-", 1)
            await self._rollout.reserve(sample.sample_id)
        return sample


class Rollouter(FullyAsyncRollouter.__ray_metadata__.modified_class):  # type: ignore[misc]
    """verl's rollouter, which reserves before it generates."""

    pending_queue: asyncio.Queue[Any]
    _finished_before = 0

    async def set_message_queue_client(self, message_queue_client: BerthMessageQueue) -> None:
        """As verl's."""
        await super().set_message_queue_client(message_queue_client)
        self.pending_queue = _ReservingQueue(message_queue_client.rollout, self.pending_queue.maxsize)

    def load_checkpoint(self) -> Any:
        """As verl's; what the ledger has finished since that checkpoint is neither generated nor counted again."""
        answer = super().load_checkpoint()
        batch_size = self.message_queue_client.settings.batch_size
        self._finished_before = self.message_queue_client.finished_since((self.global_steps - 1) // batch_size)
        self.global_steps += self._finished_before
        return answer

    def _create_continuous_iterator(self) -> Iterator[tuple[int, Any]]:
        return islice(super()._create_continuous_iterator(), self._finished_before, None)

    async def hold_weights(self, weights: berth.Weights) -> None:
        """The trainer has synced these. Takes no lock of the rollouter's: those that hold it may wait for these."""
        await self.message_queue_client.rollout.hold(weights)

    async def _process_single_sample_streaming(self, rollout_sample: Any) -> None:
        prompts = rollout_sample.full_batch
        filling = None
        # What the ledger has given up (a timeout, a rewind) is generated again: its prompt is in nobody's hands but these.
        while filling is None or not filling.kept:
            rollout_sample.full_batch = prompts
            filling = Filling(await self.message_queue_client.rollout.reserved(rollout_sample.sample_id), rollout_sample)
            token = filling_now.set(filling)
            try:
                async with filling.slot:
                    await super()._process_single_sample_streaming(rollout_sample)
            finally:
                filling_now.reset(token)


class Trainer(FullyAsyncTrainer.__ray_metadata__.modified_class):  # type: ignore[misc]
    """verl's trainer, which publishes each version that it syncs, and tells which are saved."""

    async def _setup_checkpoint_manager(self) -> None:
        await super()._setup_checkpoint_manager()
        update_weights = self.checkpoint_manager.update_weights

        async def update_weights_and_publish(global_steps: int) -> Any:
            # Before the rollouter is told to go on: it may hold a lock until a sample is finished that waits for this version.
            answer = await update_weights(global_steps=global_steps)
            weights = await asyncio.to_thread(self.message_queue_client.publish, global_steps)
            await asyncio.wrap_future(self.rollouter.hold_weights.remote(weights).future())
            return answer

        self.checkpoint_manager.update_weights = update_weights_and_publish

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        self.message_queue_client.checkpoint(self.current_param_version)


class _Runner(fully_async_main.FullyAsyncTaskRunner.__ray_metadata__.modified_class):  # type: ignore[misc]
    """verl's job, of these parts."""

    def _initialize_components(self, config: Any) -> None:
        main: Any = fully_async_main
        main.FullyAsyncRollouter = ray.remote(num_cpus=10, max_concurrency=100)(Rollouter)
        main.FullyAsyncTrainer = ray.remote(num_cpus=10)(Trainer)
        main.MessageQueue = SimpleNamespace(remote=lambda *_: None)
        main.MessageQueueClient = lambda _: BerthMessageQueue(settings_of(config))
        super()._initialize_components(config)


#: In place of ``FullyAsyncTaskRunner``.
TaskRunner = ray.remote(num_cpus=1)(_Runner)
