"""TRL's asynchronous GRPO trainer on the batches of a run: for TRL 1.16, whose ``trl.experimental.async_grpo`` may change.

In the trainer's process a :class:`RolloutSource` is the ``rollout_worker``. In the rollout processes, which reserve and occupy
as any worker does, :func:`write_samples` and :func:`member_results` make a group's payload. Generating is not done here.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from accelerate.utils import broadcast_object_list
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from .. import models as m
from ..run import Run
from ..trainer import Trainer
from ._trl_samples import delete_samples, member_results, read_samples, write_samples
from ._trl_settings import refusals

if TYPE_CHECKING:
    TrainerCallback = object
else:
    from transformers import TrainerCallback

__all__ = ["RolloutSample", "RolloutSource", "delete_samples", "member_results", "read_samples", "write_samples"]


class RolloutSource:
    """The ``rollout_worker`` of an ``AsyncGRPOTrainer``: it trains the run's batches, each once, and publishes what it made of them.

    Make one in each rank, give it to the trainer, and :meth:`attach` it before ``train()``. Only rank 0 talks to the ledger then.
    A batch is what TRL trains between two weight syncs; at each it is published, and the next one is asked for.

    ``weights`` says where the weights of a version are: a function of the version, or a text with ``{version}`` in it.
    ``resume_from`` is the version that the trainer starts with; left out, it is counted from the ``global_step`` of TRL's
    checkpoint, which is right as long as the run and its training began together. ``mode`` and ``force`` are those of
    :meth:`berth.Run.trainer`. ``read`` gives the samples behind a payload.
    """

    def __init__(
        self,
        run: Run,
        *,
        weights: Callable[[int], str | None] | str | None = None,
        resume_from: int | None = None,
        mode: m.ResumeMode = "replay",
        force: bool = False,
        read: Callable[[str], list[RolloutSample]] = read_samples,
        name: str = "trainer",
    ) -> None:
        self.run = run
        """The run."""
        self.config = run.status().config
        """Its configuration, as it was when the source was made."""
        self.samples = self.config.batch_size * self.config.group_size
        """How many samples a batch has."""
        # A batch fits, and the ledger gives no other before it is published.
        self.rollout_buffer: queue.Queue[RolloutSample] = queue.Queue(self.samples)
        """What TRL takes samples from: what is left of the batch in training."""
        self.metrics_queue: queue.Queue[dict[str, float]] = queue.Queue(1024)
        """What TRL logs: ``berth/wait_s``, how long the trainer waited for each batch."""
        self._weights = weights
        self._resume_from, self._mode, self._force, self._name = resume_from, mode, force, name
        self._read = read
        self._trainer: Any = None
        self._open = ExitStack()
        self._session: Trainer | None = None
        self._batches: Iterator[m.Batch] = iter(())
        self._model_version = 0

    def attach(self, trainer: Any) -> None:
        """Binds it to the ``AsyncGRPOTrainer`` that it was given to, in every rank. Raises ValueError if the settings do not fit."""
        if trainer.accelerator.is_main_process and trainer.rollout_worker is not self:
            raise ValueError("this source is not the trainer's: AsyncGRPOTrainer(rollout_worker=source)")
        reasons = list(refusals(self.config, trainer.args, trainer.accelerator.num_processes))
        if reasons:
            raise ValueError(f"run {self.run.name} and the trainer do not fit: " + "; ".join(reasons))
        self._trainer = trainer
        # Behind TRL's own callbacks, so that at the end of a step the version is published before.
        trainer.add_callback(_Batches(self))
        if trainer.accelerator.is_main_process:
            trainer.get_train_dataloader = self._batch_by_batch(trainer.get_train_dataloader)

    def _batch_by_batch(self, make: Callable[[], Any]) -> Callable[[], Any]:
        """TRL's loader that ends with each batch, and so makes it an epoch.

        It asks for one micro-batch more than it gives, and would wait at the end of a batch for the next, which comes after the
        batch is published.
        """

        def get_train_dataloader() -> Any:
            loader = make()
            planner = loader.base_dataloader.dataset
            planner.dataset = _Pass(planner.dataset, self.samples)
            return loader

        return get_train_dataloader

    # What TRL calls, in rank 0.

    def start(self) -> None:
        """Opens the trainer session and waits for the first batch. Raises RuntimeError if the run is finished."""
        if self._trainer is None:
            raise RuntimeError("the source was not attached to its trainer: source.attach(trainer) before trainer.train()")
        step, per_batch = self._trainer.state.global_step, self._trainer.args.weight_sync_steps
        if step % per_batch:
            raise ValueError(
                f"the checkpoint of step {step} is inside a batch of {per_batch} steps: use one of a multiple of them"
            )
        resume_from = self._resume_from
        if resume_from is None:
            resume_from = self.config.initial_version + step // per_batch
        opening = self.run.trainer(self._name, resume_from=resume_from, mode=self._mode, force=self._force)
        session = self._session = self._open.enter_context(opening)
        self._batches = iter(session)
        if session.policy_version == self.config.initial_version and session.weights is None:
            initial = self._reference(session.policy_version)
            if initial is not None:
                self.run.publish_initial(initial, epoch=session.epoch)
        if not self.fill():
            raise RuntimeError(f"run {self.run.name} is finished: there is nothing left to train")

    def stop(self) -> None:
        """Leaves the session. A batch that is not published is given to the next one again."""
        self._session = None
        self._open.close()

    def update_model_version(self, model_version: int) -> None:
        """Publishes the version that the batch was trained into; before :meth:`start`, when TRL syncs its first weights, nothing."""
        self._model_version = model_version
        if self._session is None:
            return
        if not self.rollout_buffer.empty():
            raise RuntimeError(
                f"TRL synced weights with {self.rollout_buffer.qsize()} samples of batch {self._session.trainer_version} untrained"
            )
        self._session.publish(self._reference(self._session.trainer_version + 1))

    def check_health(self, stale_after_s: float) -> None:
        """Raises RuntimeError: TRL calls it when the buffer is empty before a batch is over, and nothing more will come.

        ``stale_after_s`` is not used. While the ledger is away, calls are repeated for as long as the client's ``Retry`` says,
        and then raise.
        """
        raise RuntimeError(f"TRL did not train all {self.samples} samples of a batch: did it drop some as stale?")

    # What the callback calls, in rank 0.

    def fill(self) -> bool:
        """Waits for the next batch and puts its samples into the buffer; False when the run is finished."""
        asked = time.monotonic()
        batch = next(self._batches, None)
        if batch is None:
            return False
        for sample in list(self._samples_of(batch)):
            self.rollout_buffer.put_nowait(sample)
        try:
            self.metrics_queue.put_nowait({"berth/wait_s": time.monotonic() - asked})
        except queue.Full:
            pass  # The trainer does not log.
        return True

    def checkpointed(self) -> None:
        """Tells the ledger that TRL has saved the latest version, so that older batches need not be kept."""
        if self._session is not None:
            self._session.checkpoint()

    def _samples_of(self, batch: m.Batch) -> Iterator[RolloutSample]:
        for place, entry in enumerate(batch):
            samples = self._group(entry)
            if len(samples) != self.config.group_size:
                raise ValueError(
                    f"entry {entry.id} of batch {batch.version} has {len(samples)} samples and not {self.config.group_size}: "
                    "a member must be one sample"
                )
            # In TRL's count of versions, so that it sees the staleness that the ledger says.
            version = self._model_version - (batch.version - entry.version)
            group = batch.version * self.config.batch_size + place
            for sample in samples:
                yield replace(sample, model_version=version, group_id=group, enqueued_at=time.time())

    def _group(self, entry: m.Trajectory) -> list[RolloutSample]:
        if entry.payload is not None:
            return self._read(entry.payload)
        samples = []
        for member in entry.members or ():
            if member.payload is None or member.advantage is None:
                raise ValueError(f"member {member.index} of entry {entry.id} has no payload, or the group not all rewards")
            # Who wrote the member did not know the others' rewards; the ledger does.
            samples += [replace(sample, advantage=member.advantage) for sample in self._read(member.payload)]
        return samples

    def _reference(self, version: int) -> str | None:
        if isinstance(self._weights, str):
            return self._weights.format(version=version)
        return None if self._weights is None else self._weights(version)


class _Pass:
    """The samples of one batch, each time it is iterated over."""

    def __init__(self, dataset: Iterable[Any], samples: int) -> None:
        self._dataset = dataset
        self._samples = samples

    def __iter__(self) -> Iterator[Any]:
        return islice(self._dataset, self._samples)


class _Batches(TrainerCallback):
    """Ends TRL's epoch with the batch, and the training with the run."""

    def __init__(self, source: RolloutSource) -> None:
        self._source = source

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % args.weight_sync_steps == 0:
            control.should_epoch_stop = True

    def on_epoch_end(self, args: Any, _state: Any, control: Any, **_: Any) -> None:
        if control.should_training_stop:
            return
        main = self._source._trainer.accelerator.is_main_process
        goes_on = broadcast_object_list([self._source.fill() if main else None])[0]
        if not goes_on:
            control.should_training_stop = True
            if args.save_strategy == "steps":
                # As TRL does at its own last step.
                control.should_save = True

    def on_save(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        if self._source._trainer.accelerator.is_main_process and state.global_step % args.weight_sync_steps == 0:
            self._source.checkpointed()
