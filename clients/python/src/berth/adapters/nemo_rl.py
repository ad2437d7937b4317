"""The replay buffer of NeMo-RL's asynchronous GRPO, with its books in Berth's ledger and its trajectories in files.

It answers the calls that NeMo-RL's trajectory collector and ``async_grpo_train`` make of their ``ReplayBuffer`` actor; neither
changes. It imports neither Ray nor NeMo-RL: the user wraps the class that :func:`replay_buffer` makes in ``ray.remote``.

NeMo-RL stamps a group with its ``target_weight_version``, the step that shall train it, before it is generated. Target ``t`` is
Berth's buffer ``t``. To ask what a target needs reserves it; a finished group takes the earliest legal place, also that of an
earlier target, whose own groups then take later ones. So a target counts groups, and the ledger says which step trains which.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import berth

from ._files import TrajectoryFiles

logger = logging.getLogger("berth")

#: The most entries that one call reserves; the collector asks again for the rest.
MOST_AT_ONCE = 1_024


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a buffer is told. Make it once a job, in the process that starts it."""

    url: str
    run: str
    directory: str
    """Where the trajectories are, in a folder of the run's name. Every place where the actor may run must see it; it is read with
    pickle, so nobody else may write there."""
    num_prompts_per_step: int
    num_generations_per_prompt: int
    max_trajectory_age_steps: int
    """These three as in NeMo-RL's ``grpo`` configuration."""
    resume_from: int
    """The step of the checkpoint: ``current_step`` of the loaded state, 0 at the start."""
    mode: berth.ResumeMode = "replay"
    force: bool = False
    token: str | None = field(default=None, repr=False)
    config: Mapping[str, Any] = field(default_factory=dict)
    """More of the run's configuration, as ``stuck_timeout_ms``."""
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Names the job: a buffer that is started again in it goes on where the job is."""


def replay_buffer(settings: Settings) -> type[ReplayBuffer]:
    """The class to put in the place of NeMo-RL's ``ReplayBuffer``, once wrapped in ``ray.remote``."""
    return type("BerthReplayBuffer", (ReplayBuffer,), {"settings": settings})


class ReplayBuffer:
    """The replay buffer of one run. It connects at its first call, with the sessions of a trainer and of a worker.

    No call waits for groups. What the ledger refuses is raised, as :class:`berth.BerthError`.
    """

    settings: Settings

    def __init__(self, max_size: int, drop_incomplete_targets_on_restore: bool = False) -> None:
        if max_size <= 0:
            raise ValueError(f"max_size must be positive, and is {max_size}")
        # Both are NeMo-RL's, and bound nothing here: the slot table does, and a restart finds it as it was.
        self.max_size = max_size
        self._lock = threading.RLock()
        self._ledger: _Ledger | None = None
        #: Reservations whose groups are being generated, by target; and those for which nobody began to.
        self._claimed: dict[int, list[berth.Slot]] = {}
        self._spare: list[berth.Slot] = []
        self._asked: int | None = None
        self._sampled: int | None = None
        self._checkpointed = self.settings.resume_from

    # What the trajectory collector calls.

    def get_last_target_weight_already_generated(self) -> int:
        """The last target whose batch was sampled whole."""
        with self._lock:
            self._asked = None
            return self._open.run.status().next_buffer - 1

    def get_trajectories_needed(
        self, target_step: int, num_prompts_per_step: int, max_age_steps: int | None = None
    ) -> int:
        """How many groups are to be generated for a target now; they have their reservations."""
        with self._lock:
            self._check(num_prompts_per_step, max_age_steps)
            ledger = self._open
            # A target lies within the greatest age of the collector's weights, so that it tells of newer ones.
            self._reached(target_step - self.settings.max_trajectory_age_steps)
            # Only a target of which nothing is being generated is asked for.
            self._spare += self._claimed.pop(target_step, [])
            self._spare = [slot for slot in self._spare if not slot.cancelled]
            missing = self._missing(target_step)
            if missing > len(self._spare):
                self._spare += ledger.worker.reserve_up_to(
                    min(missing - len(self._spare), MOST_AT_ONCE), ledger.version
                )
            needed = min(missing, len(self._spare))
            # The collector looks for a target first, and asks once more for the one that it begins. What it only looked at must
            # not wait for it: by its next look it may have newer weights, and other targets.
            if self._asked == target_step and needed:
                self._claimed[target_step], self._spare = self._spare[:needed], self._spare[needed:]
            self._asked = None if self._asked == target_step else target_step
            return needed

    def _missing(self, target: int) -> int:
        """How many groups the buffers up to the target lack, at most a step's. Those that are on their way hold their places."""
        buffers = [each for each in self._open.run.buffers().buffers if each.version <= target]
        return min(self.settings.num_prompts_per_step, sum(each.empty + each.reserved for each in buffers))

    def add(self, trajectory: dict[str, Any], weight_version: int, target_weight_version: int) -> str:
        """Hands in a finished group that ``weight_version`` began to generate: ``success``, or ``full``, to be tried again.

        A group that the ledger does not want any more (given up, too old, of zero variance) is dropped, with a warning.
        """
        with self._lock:
            members = _members(trajectory["batch"], self.settings.num_generations_per_prompt, weight_version)
            ledger = self._open
            self._reached(weight_version)
            try:
                slot = self._slot(weight_version, target_weight_version)
            except berth.VersionTooStale as error:
                logger.warning("a group of weight version %d is dropped: %s", weight_version, error)
                return "success"
            if slot is None:
                return "full"
            payload = ledger.files.write(slot.id, trajectory)
            meta = {"weight_version": weight_version, "target_weight_version": target_weight_version}
            if len(members) > 1:
                occupied = slot.occupy(members=members, payload=payload, meta=meta)
            else:
                occupied = slot.occupy(reward=members[0].reward, tokens=members[0].tokens, payload=payload, meta=meta)
            if not occupied.kept:
                ledger.files.remove(slot.id)
                logger.warning("group %s is dropped: %s", slot.id, occupied.reason)
            return "success"

    def _slot(self, weight_version: int, target: int) -> berth.Slot | None:
        """The reservation of a finished group, or one made now, if there is a place."""
        reserved = self._claimed.get(target)
        if reserved:
            slot = reserved.pop(0)
            if slot.version <= weight_version:
                return slot
            # The collector read its label before it asked, and newer weights came in between: the label counts.
            slot.discard("older_weights")
        for index, slot in enumerate(self._spare):
            if slot.version <= weight_version:
                return self._spare.pop(index)
        return next(iter(self._open.worker.reserve_up_to(1, weight_version)), None)

    # What the training loop calls.

    def sample(self, num_prompt_groups: int, current_weight_version: int, max_age_steps: int) -> dict[str, Any] | None:
        """The batch that this weight version trains, or None while it lacks groups; asked again, the same batch.

        ``trajectories`` are as they were added, ``avg_trajectory_age`` is in versions. A new weight version is published by it.
        """
        with self._lock:
            self._check(num_prompt_groups, max_age_steps)
            self._reached(current_weight_version)
            ledger = self._open
            if current_weight_version != ledger.version:
                raise ValueError(f"weight version {current_weight_version}: the trainer is at version {ledger.version}")
            answer = ledger.trainer.next_batch()
            if answer.finished or (answer.batch is not None and answer.batch.final):
                raise RuntimeError(f"run {self.settings.run} was drained: it has no whole batches any more")
            if answer.batch is None:
                return None
            self._sampled = answer.batch.version
            trajectories = [ledger.files.read(entry.id) for entry in answer.batch]
            ages = [entry.staleness or 0 for entry in answer.batch]
            return {"trajectories": trajectories, "avg_trajectory_age": sum(ages) / len(ages)}

    def has_complete_batch(self, target_step: int, num_prompts_per_step: int, max_age_steps: int | None = None) -> bool:
        """Whether all groups of a step are there: finished, or sampled before a restart and to be sampled again."""
        with self._lock:
            self._check(num_prompts_per_step, max_age_steps)
            table = self._open.run.buffers()
            if target_step < table.next_buffer:
                return target_step >= table.trainer_version
            return any(each.version == target_step and each.state == "ready" for each in table.buffers)

    def size(self) -> int:
        """How many groups are finished and not sampled."""
        with self._lock:
            return self._open.run.status().occupied

    def get_debug_info(self) -> dict[str, Any]:
        """The version of each finished group and the step whose buffer it is in, and why the trainer waits."""
        with self._lock:
            run = self._open.run
            rows = [(slot, each.version) for each in run.buffers(slots=True).buffers for slot in each.slots]
            groups = [(slot.version, target) for slot, target in rows if slot.state == "occupied"]
            return {
                "total_trajectories": len(groups),
                "trajectory_versions": [version for version, _ in groups],
                "target_weight_versions": [target for _, target in groups],
                "max_size": self.max_size,
                "explanation": run.explain().summary,
            }

    def save_to_path(self, path: str) -> int:
        """Writes into a checkpoint which run and version it is of; the number of buffered groups.

        NeMo-RL saves once the new weights are out, which publishes them, and once the checkpoint before is durable: what only
        that one's predecessors need is let go.
        """
        with self._lock:
            ledger = self._open
            if self._sampled == ledger.version:
                self._reached(ledger.version + 1)
            Path(path).write_text(json.dumps({"run": self.settings.run, "version": ledger.version}))
            ledger.trainer.checkpoint(self._checkpointed)
            self._checkpointed = ledger.version
            ledger.files.keep(e.id for state in ("occupied", "taken") for e in ledger.run.trajectories(state=state))
            return self.size()

    def load_from_path(
        self,
        path: str,
        num_prompts_per_step: int | None = None,
        current_training_step: int | None = None,
        max_age_steps: int | None = None,
    ) -> dict[str, int]:
        """Checks that a checkpoint is of this run. Nothing is loaded: ``resume_from`` has brought the ledger to it."""
        try:
            run = json.loads(Path(path).read_bytes())["run"]
        except ValueError as error:
            raise ValueError(f"{path} is another replay buffer's: its groups cannot be taken over") from error
        if run != self.settings.run or current_training_step not in (None, self.settings.resume_from):
            here = f"run {self.settings.run} and resume_from={self.settings.resume_from}"
            raise ValueError(f"{path} is of run {run}, for step {current_training_step}; this buffer has {here}")
        return {"num_trajectories": self.size()}

    def close(self) -> None:
        """Gives back what is reserved. NeMo-RL kills its actor instead; the next job's buffer, or the lease, gives it back."""
        with self._lock:
            if self._ledger is not None:
                self._ledger.close()
            self._ledger, self._claimed, self._spare = None, {}, []

    @property
    def _open(self) -> _Ledger:
        if self._ledger is None:
            self._ledger = _Ledger(self.settings)
        return self._ledger

    def _reached(self, weight_version: int) -> None:
        """Publishes a version that a caller has: NeMo-RL has loaded the weights into the engine before it says their version."""
        if weight_version > self._open.version:
            self._open.trainer.publish(version=weight_version)

    def _check(self, num_prompts: int, max_age_steps: int | None) -> None:
        prompts, age = self.settings.num_prompts_per_step, self.settings.max_trajectory_age_steps
        if num_prompts != prompts or max_age_steps not in (None, age):
            raise ValueError(f"{num_prompts} prompts a step, age {max_age_steps}: the run has {prompts} and {age}")


class _Ledger:
    """The run, with the trainer's session and a worker's for the collector, and the files."""

    def __init__(self, settings: Settings) -> None:
        self.files = TrajectoryFiles(Path(settings.directory).absolute() / settings.run)
        self._client = berth.connect(settings.url, token=settings.token)
        sizes = {"batch_size": settings.num_prompts_per_step, "max_staleness": settings.max_trajectory_age_steps}
        group = {"group_size": settings.num_generations_per_prompt}
        self.run = self._client.run(settings.run, **sizes, **group, **settings.config)
        resume_from, mode, force = settings.resume_from, settings.mode, settings.force
        with self.run.trainer(resume_from=resume_from, mode=mode, force=force, session=settings.session) as opened:
            # To a session that goes on, the answer is that to its first call: the trainer may be further by now.
            version = self.run.status().trainer_version
            self.trainer = self.run.join_trainer(epoch=opened.epoch, trainer_version=version).__enter__()
        self.worker = self.run.worker("collector").__enter__()

    @property
    def version(self) -> int:
        """Where the trainer stands, with whose weights the engine generates."""
        return self.trainer.trainer_version

    def close(self) -> None:
        self.worker.__exit__(None, None, None)
        self._client.close()


def _members(batch: Mapping[str, Any], count: int, version: int) -> list[berth.MemberResult]:
    """A group's responses with what NeMo-RL's batch says of each: its reward, and its messages."""
    if len(batch["total_reward"]) != count:
        raise ValueError(f"a group of {len(batch['total_reward'])} responses, with num_generations_per_prompt={count}")
    responses = enumerate(zip(batch["total_reward"], batch["message_log"], strict=True))
    return [
        berth.MemberResult(index=index, reward=float(reward), tokens=_tokens(log), version=version)
        for index, (reward, log) in responses
    ]


def _tokens(log: list[dict[str, Any]]) -> int:
    return sum(len(message["token_ids"]) for message in log if message["role"] == "assistant")
