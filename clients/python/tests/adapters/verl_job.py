"""A job of verl's own rollouter and trainer, of which the engines, the model and the data set are stand-ins: what runs is verl's
queueing, counting, feeding, stepping, syncing and saving. Imported in the test's process and in Ray's."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import ray
import torch
from hydra import compose, initialize_config_dir
from verl import DataProto
from verl.experimental.fully_async_policy import fully_async_main, fully_async_rollouter, fully_async_trainer

from berth.adapters import verl as adapter

RECIPE = Path(fully_async_main.__file__).parent / "config"
PROMPTS = 64
RESPONSES = 2


def configuration(url: str, directory: Path, total: int, **changes: Any) -> Any:
    """verl's configuration of the recipe: steps of 2 samples, 2 steps a version, so a batch of 4; at most half a batch ahead."""
    own = {"url": url, "run": f"verl-{directory.name}", "directory": str(directory / "samples"), "lease_ms": 5000}
    settings = {
        "async_training.staleness_threshold": 0.5,
        "async_training.trigger_parameter_sync_step": 2,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 2,
        "actor_rollout_ref.rollout.n": RESPONSES,
        "actor_rollout_ref.rollout.mode": "async",
        "actor_rollout_ref.hybrid_engine": False,
        "data.train_batch_size": 0,
        "data.gen_batch_size": 1,
        "rollout.total_rollout_steps": total,
        "trainer.default_local_dir": str(directory / "checkpoints"),
        "trainer.logger": "[console]",
        "trainer.balance_batch": False,
        "trainer.save_freq": 2,
        "trainer.test_freq": -1,
        "trainer.total_epochs": 1,
        "algorithm.adv_estimator": "grpo",
        **changes,
    }
    overrides = [f"{name}={value}" for name, value in settings.items()]
    overrides += [f"+async_training.berth.{name}={value}" for name, value in own.items()]
    with initialize_config_dir(str(RECIPE), version_base=None):
        return compose("fully_async_ppo_trainer", overrides=overrides)


def response(prompts: DataProto, first: int, last: int) -> DataProto:
    """What verl's agent loop makes of the copies of a prompt: three tokens of prompt, up to four of response, and a reward."""
    rows = len(prompts)
    question = int(prompts.batch["question"][0, 0])
    lengths = [2 + (question + row) % 3 for row in range(rows)]
    mask = torch.tensor([[1] * length + [0] * (4 - length) for length in lengths])
    scores = torch.zeros(rows, 4)
    scores[:, 0] = torch.tensor([float((question + row) % 2) for row in range(rows)])
    tensors = {
        "prompts": torch.full((rows, 3), question),
        "responses": torch.full((rows, 4), question),
        "response_mask": mask,
        "attention_mask": torch.cat([torch.ones(rows, 3, dtype=torch.long), mask], dim=1),
        "rm_scores": scores,
    }
    spans = {"min_global_steps": [first] * rows, "max_global_steps": [last] * rows}
    metrics = [{"generate_sequences": 0.1, "tool_calls": 0.0} for _ in range(rows)]
    arrays = {name: np.array(values, dtype=object) for name, values in spans.items()}
    return DataProto.from_dict(tensors=tensors, non_tensors=arrays, meta_info={"metrics": metrics})


class Engine:
    """In place of the agent loop and its servers. A response takes at most 30 ms."""

    version = -1
    generated: int = 0

    async def generate_sequences_single(self, prompts: DataProto) -> DataProto:
        first = self.version
        await asyncio.sleep(0.01 * (int(prompts.batch["question"][0, 0]) % 4))
        self.generated += 1
        return response(prompts, first, self.version)


class Prompts:
    """In place of the data loader."""

    def __init__(self) -> None:
        self.next = 0

    def __len__(self) -> int:
        return PROMPTS

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while self.next < PROMPTS:
            self.next += 1
            yield {"question": torch.tensor([[self.next - 1]])}

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next = state["next"]


class EngineManager:
    """In place of verl's checkpoint engine, which broadcasts the trainer's weights."""

    def __init__(self, config: Any, actor_wg: Any, replicas: list[Any]) -> None:
        (self.rollouter,) = replicas

    async def update_weights(self, global_steps: int) -> None:
        await asyncio.wrap_future(self.rollouter.load.remote(global_steps).future())


class Rollouter(adapter.Rollouter):
    """The adapter's rollouter with a stand-in for the engines and the data."""

    def __init__(self, config: Any) -> None:
        made: Any = fully_async_rollouter
        made.create_rl_dataset = made.create_rl_sampler = lambda *_, **__: None
        super().__init__(config, tokenizer=None)
        self.async_rollout_manager = Engine()
        self.llm_server_manager = SimpleNamespace(get_active_server_count=lambda: 1)

    def _create_dataloader(self, *_: Any) -> None:
        self.train_dataloader = Prompts()

    async def init_workers(self) -> None:
        self._init_async_objects()

    async def get_replicas(self) -> list[Any]:
        return [ray.get_runtime_context().current_actor]

    async def load(self, version: int) -> None:
        """The engines load these weights, whatever is in flight."""
        self.async_rollout_manager.version = version

    async def look(self) -> dict[str, Any]:
        """Where it stands."""
        return {"generated": self.async_rollout_manager.generated, "pid": os.getpid(), **await self.get_statistics()}


class Trainer(adapter.Trainer):
    """The adapter's trainer without a model. What it trains it writes down; before step ``halt_at`` is done it kills itself."""

    def __init__(self, config: Any, record: Path, halt_at: int | None) -> None:
        made: Any = fully_async_trainer
        made.CheckpointEngineManager = EngineManager
        super().__init__(config, None, {}, None)
        self.record, self.halt_at = record, halt_at
        self.actor_wg = None
        self.actor_rollout_wg = SimpleNamespace(
            save_checkpoint=lambda path, *_, **__: Path(path).mkdir(parents=True), load_checkpoint=lambda *_, **__: None
        )

    async def init_workers(self) -> None:
        pass

    def _fit_update_actor(self, batch: DataProto) -> DataProto:
        if self.halt_at == self.global_steps:
            os.kill(os.getpid(), 9)
        first, last = (batch.non_tensor_batch[name].tolist() for name in ("min_global_steps", "max_global_steps"))
        trained = {
            "version": self.current_param_version,
            "step": self.local_trigger_step,
            "samples": batch.non_tensor_batch["uid"].tolist()[::RESPONSES],
            "first": first[::RESPONSES],
            "last": last[::RESPONSES],
            "rows": len(batch),
        }
        with self.record.open("a") as file:
            file.write(json.dumps(trained) + "\n")
        return batch

    def _same(self, batch: DataProto) -> DataProto:
        return batch

    _fit_compute_reward = _fit_compute_log_prob = _fit_compute_ref_log_prob = _same
    _fit_compute_critic = _fit_compute_advantage = _fit_update_critic = _same

    def _fit_collect_metrics(self, batch: DataProto) -> None:
        pass


class Job:
    """What `FullyAsyncTaskRunner` does with its parts, in its order."""

    def __init__(self, config: Any, record: Path, halt_at: int | None = None) -> None:
        self.rollouter = ray.remote(num_cpus=1, max_concurrency=100)(Rollouter).remote(config)
        self.trainer = ray.remote(num_cpus=1)(Trainer).remote(config, record, halt_at)
        ray.get([self.trainer.init_workers.remote(), self.rollouter.init_workers.remote()])
        ray.get(self.rollouter.set_max_required_samples.remote())
        ray.get(self.trainer.set_rollouter.remote(self.rollouter))
        ray.get(self.trainer.set_total_train_steps.remote(ray.get(self.rollouter.get_total_train_steps.remote())))
        queue = adapter.BerthMessageQueue(adapter.settings_of(config))
        ray.get(self.rollouter.set_message_queue_client.remote(queue))
        ray.get(self.trainer.set_message_queue_client.remote(queue))
        ray.get(self.trainer.load_checkpoint.remote())
        ray.get(self.rollouter.load_checkpoint.remote())
        ray.get(self.trainer._fit_update_weights.remote())

    def fit(self) -> None:
        """Until both have ended; raises what ended one of them."""
        self.generating, self.training = self.rollouter.fit.remote(), self.trainer.fit.remote()
        ray.get([self.training, self.generating])

    def kill(self) -> None:
        """What is left of it."""
        for actor in (self.trainer, self.rollouter):
            ray.kill(actor)
