"""The adapter for verl: its own rollouter and trainer on a real server, with stand-ins for the engines, the model and the data set."""

from __future__ import annotations

import pytest

try:
    import numpy as np
    import ray
    import torch
    import verl_job
    from verl.experimental.fully_async_policy.detach_utils import (
        RolloutSample,
        assemble_batch_from_rollout_samples,
        prepare_single_generation_data,
    )
    from verl.experimental.fully_async_policy.message_queue import MessageQueueClient

    from berth.adapters import verl as adapter
    from berth.adapters._verl_sides import Filling, _member, _span, filling_now
except ImportError as missing:
    pytest.skip(f"NOT RUN: verl is not installed whole: {missing}", allow_module_level=True)

import ast
import asyncio
import inspect
import json
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verl.experimental import fully_async_policy
from verl.experimental.fully_async_policy import fully_async_main

import berth


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Ray, whose processes import what this one does."""
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    # A machine with much else to do is slow to start it.
    os.environ.update(RAY_AUTH_MODE="disabled", RAY_raylet_start_wait_time_s="300")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": paths}})
    yield
    ray.shutdown()


def trained(record: Path) -> list[dict[str, Any]]:
    """What the trainer wrote down, step by step."""
    return [json.loads(line) for line in record.read_text().splitlines()]


def ledger_of(url: str, directory: Path) -> berth.Run:
    return berth.connect(url).run(f"verl-{directory.name}")


def test_verls_own_rollouter_and_trainer_train_whole_batches_within_the_bound_and_drop_nothing(
    cluster: None, real_server: str, tmp_path: Path
) -> None:
    job = verl_job.Job(verl_job.configuration(real_server, tmp_path, total=16), tmp_path / "record")
    job.fit()
    job.kill()

    steps = trained(tmp_path / "record")
    assert [(step["version"], step["step"]) for step in steps] == [(v, s) for v in range(4) for s in (1, 2)]
    assert all(step["rows"] == 2 * verl_job.RESPONSES for step in steps)
    samples = [sample for step in steps for sample in step["samples"]]
    assert len(samples) == len(set(samples)) == 16
    for step in steps:
        assert all(0 <= step["version"] - first <= 1 for first in step["first"])
    run = ledger_of(real_server, tmp_path)
    status = run.status()
    assert (status.policy_version, status.finished, status.totals.trained) == (4, True, 16)
    assert status.totals.discarded == {}
    # The checkpoint of version 4 was saved: no file is needed any more.
    assert list((tmp_path / "samples").iterdir()) == []


def test_a_trainer_that_is_killed_in_mid_batch_is_given_the_same_samples_again(
    cluster: None, real_server: str, tmp_path: Path
) -> None:
    config = verl_job.configuration(real_server, tmp_path, total=24)
    # Version 2 is saved after step 4. Step 8 is the second of batch 3.
    killed = verl_job.Job(config, tmp_path / "before", halt_at=8)
    with pytest.raises(ray.exceptions.RayActorError):
        killed.fit()
    killed.kill()
    before = trained(tmp_path / "before")
    assert [(step["version"], step["step"]) for step in before][-3:] == [(2, 1), (2, 2), (3, 1)]

    resumed = verl_job.Job(config, tmp_path / "after")
    resumed.fit()
    generated = ray.get(resumed.rollouter.look.remote())["generated"]
    resumed.kill()

    after = trained(tmp_path / "after")
    assert [(step["version"], step["step"]) for step in after] == [(v, s) for v in range(2, 6) for s in (1, 2)]
    assert [step["samples"] for step in after[:3]] == [step["samples"] for step in before[-3:]]
    samples = [sample for step in before[:4] + after for sample in step["samples"]]
    assert len(samples) == len(set(samples)) == 24
    for step in before + after:
        assert all(0 <= step["version"] - first <= 1 for first in step["first"])
    # What was finished before the kill was not generated again.
    assert generated < 24 - 8
    status = ledger_of(real_server, tmp_path).status()
    assert (status.policy_version, status.finished) == (6, True)
    assert status.totals.occupied == status.totals.trained == 24


def calls_of_the_queue() -> Iterator[tuple[str, str, ast.Call]]:
    """Each call that verl makes of its `message_queue_client`: where, which method, and how."""
    for path in sorted(Path(fully_async_policy.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if ast.unparse(node.func.value) in (
                    "self.message_queue_client",
                    "self.components['message_queue_client']",
                ):
                    yield f"{path.name}:{node.lineno}", node.func.attr, node


def test_every_call_that_the_installed_verl_makes_of_its_queue_fits() -> None:
    calls = list(calls_of_the_queue())
    assert {name for _, name, _ in calls} == {
        "clear_queue",
        "get_queue_size",
        "get_queue_size_sync",
        "get_sample",
        "get_statistics",
        "put_sample",
    }
    for where, name, call in calls:
        signature = inspect.signature(getattr(adapter.BerthMessageQueue, name))
        named = {each.arg: None for each in call.keywords if each.arg is not None}
        assert signature.bind(None, *call.args, **named), where


def test_the_queue_has_all_methods_of_verls_client_in_their_forms() -> None:
    for name, method in inspect.getmembers(MessageQueueClient, inspect.isfunction):
        if not name.startswith("_"):
            ours = getattr(adapter.BerthMessageQueue, name)
            assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(method), name
            assert list(inspect.signature(ours).parameters) == list(inspect.signature(method).parameters), name


def test_the_hooks_are_methods_that_the_installed_verl_calls() -> None:
    rollouter, trainer = adapter.Rollouter.__mro__[1], adapter.Trainer.__mro__[1]
    for name in (
        "set_message_queue_client",
        "load_checkpoint",
        "_create_continuous_iterator",
        "_process_single_sample_streaming",
    ):
        assert inspect.iscoroutinefunction(getattr(rollouter, name)) == inspect.iscoroutinefunction(
            getattr(adapter.Rollouter, name)
        )
    for name in ("_setup_checkpoint_manager", "_save_checkpoint"):
        assert inspect.iscoroutinefunction(getattr(trainer, name)) == inspect.iscoroutinefunction(
            getattr(adapter.Trainer, name)
        )


def test_the_run_is_what_the_recipe_says(tmp_path: Path) -> None:
    config = verl_job.configuration("http://berth:8080", tmp_path, total=16)
    settings = adapter.settings_of(config)
    assert (settings.batch_size, settings.samples_per_step, settings.max_staleness, settings.group_size) == (4, 2, 1, 2)
    assert settings.limits == {"lease_ms": 5000}
    assert pickle.loads(pickle.dumps(adapter.BerthMessageQueue(settings))).settings == settings
    config.async_training.use_dynamic_resource_scheduling = True
    with pytest.raises(ValueError, match="use_dynamic_resource_scheduling"):
        adapter.settings_of(config)


SCRIPT = """
    from pathlib import Path

    import hydra
    from verl.experimental.fully_async_policy import fully_async_main

    from berth.adapters.verl import TaskRunner

    RECIPE = str(Path(fully_async_main.__file__).parent / "config")


    @hydra.main(config_path=RECIPE, config_name="fully_async_ppo_trainer", version_base=None)
    def main(config):
        fully_async_main.FullyAsyncTaskRunner = TaskRunner
        fully_async_main.main.__wrapped__(config)


    main()
"""


def test_the_documented_script_reads_verls_configuration_with_the_ledgers_beside_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    own = ["+async_training.berth.url=http://berth:8080", "+async_training.berth.run=grpo-7b"]
    command = [sys.executable, "train.py", *own, "--cfg", "job", "--package", "async_training.berth"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "url: http://berth:8080\nrun: grpo-7b\n" in shown.stdout
    assert list(inspect.signature(fully_async_main.main.__wrapped__).parameters) == ["config"]


class Rollout:
    """A rollouter by hand: what the adapter's does for one sample, in this process."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue

    async def hand_in(self, number: int, version: int = 0) -> bool:
        """Generates a sample of a prompt by the weights of ``version``, for the place that was reserved for it."""
        slot = await self.queue.rollout.reserved(f"sample_0_{number}")
        prompts = prepare_single_generation_data({"question": torch.tensor([[number]])}, self.queue_config)
        full_batch = verl_job.response(prompts, version, version)
        full_batch.non_tensor_batch["uid"] = np.array([f"uid_sample_0_{number}"] * len(full_batch), dtype=object)
        sample = RolloutSample(full_batch=full_batch, sample_id=f"sample_0_{number}", epoch=0, rollout_status={})
        filling_now.set(Filling(slot, sample))
        return bool(await self.queue.put_sample(ray.cloudpickle.dumps(sample)))

    queue_config: Any = None


@pytest.fixture
def queue(real_server: str, tmp_path: Path) -> Any:
    """A queue whose first version is published, for batches of 4 samples, in steps of 2."""
    config = verl_job.configuration(real_server, tmp_path, total=16)
    Rollout.queue_config = config
    return adapter.BerthMessageQueue(adapter.settings_of(config))


def test_samples_that_verl_would_have_dropped_wait_for_a_place_and_are_assembled_by_verl(queue: Any) -> None:
    async def rollout_and_train() -> None:
        rollout = Rollout(queue)
        await queue.rollout.hold(await asyncio.to_thread(queue.publish, 0))
        for number in range(8):
            assert await rollout.hand_in(number)
        assert await queue.get_queue_size() == queue.get_statistics_sync()["max_queue_size"] == 8
        # The window is full. verl's queue would drop its oldest sample for the ninth.
        ninth = asyncio.create_task(rollout.hand_in(8, version=1))
        taken = [await queue.get_sample() for _ in range(4)]
        assert not ninth.done()
        assert [left for _, left in taken] == [1, 0, 1, 0]
        samples = [ray.cloudpickle.loads(payload) for payload, _ in taken]
        batch = assemble_batch_from_rollout_samples(samples, None, Rollout.queue_config)
        assert batch.batch["responses"].shape == (8, 4)
        assert batch.meta_info["trajectory_param_versions"].tolist() == [0] * 8
        await queue.rollout.hold(await asyncio.to_thread(queue.publish, 1))
        assert await ninth
        assert queue.get_statistics_sync()["dropped_samples"] == 0
        await queue.put_sample(None)
        more = [await queue.get_sample() for _ in range(4)]
        assert all(payload is not None for payload, _ in more)
        # The ninth fills no batch.
        await asyncio.to_thread(queue.publish, 2)
        assert await queue.get_sample() == (None, 0)
        assert queue._looking().status().totals.discarded == {"drained": 1}

    asyncio.run(rollout_and_train())


def test_the_end_comes_after_the_whole_steps_of_a_last_batch_that_is_too_short(queue: Any) -> None:
    async def rollout_and_train() -> None:
        await queue.rollout.hold(await asyncio.to_thread(queue.publish, 0))
        for number in range(7):
            assert await Rollout(queue).hand_in(number)
        assert all([(await queue.get_sample())[0] for _ in range(4)])
        await asyncio.to_thread(queue.publish, 1)
        assert all([(await queue.get_sample())[0] for _ in range(2)])
        await queue.put_sample(None)
        # One more sample, too few for a step: verl drops it at the end, which comes whenever it is asked for.
        seventh, end, still = [await queue.get_sample() for _ in range(3)]
        assert seventh[0] is not None and end == still == (None, 0)

    asyncio.run(rollout_and_train())


def test_a_trainer_that_is_started_again_is_given_the_same_samples(queue: Any) -> None:
    async def rollout() -> None:
        await queue.rollout.hold(await asyncio.to_thread(queue.publish, 0))
        for number in range(6):
            assert await Rollout(queue).hand_in(number)
        first = [await queue.get_sample() for _ in range(3)]
        again = pickle.loads(pickle.dumps(queue))
        again.publish(0)
        assert [again.get_sample_sync() for _ in range(3)] == first
        with pytest.raises(berth.Fenced):
            queue.publish(1)
        await queue.rollout.end()

    asyncio.run(rollout())


def test_a_sample_without_a_place_or_of_older_weights_is_refused(queue: Any) -> None:
    async def rollout() -> None:
        await queue.rollout.hold(await asyncio.to_thread(queue.publish, 0))
        with pytest.raises(berth.BerthError, match="without a reservation"):
            await queue.put_sample(b"bytes")
        for number in range(4):
            assert await Rollout(queue).hand_in(number)
        assert all([(await queue.get_sample())[0] for _ in range(4)])
        await queue.rollout.hold(await asyncio.to_thread(queue.publish, 1))
        with pytest.raises(berth.BerthError, match="is of version 1, but the engine says"):
            await Rollout(queue).hand_in(4, version=0)
        await queue.rollout.end()

    asyncio.run(rollout())


def test_the_samples_of_versions_before_a_checkpoint_are_removed(queue: Any) -> None:
    async def rollout() -> None:
        directory = Path(queue.settings.directory)
        await queue.rollout.hold(await asyncio.to_thread(queue.publish, 0))
        for number in range(6):
            assert await Rollout(queue).hand_in(number)
        [await queue.get_sample() for _ in range(4)]
        await asyncio.to_thread(queue.publish, 1)
        assert len(list(directory.iterdir())) == 6
        queue.checkpoint(1)
        assert len(list(directory.iterdir())) == 2
        assert (await queue.get_memory_usage())["queue_samples"] == 2
        await queue.put_validate(b"results")
        assert (queue.get_validate_sync(), queue.get_validate_sync()) == (b"results", None)
        await queue.rollout.end()

    asyncio.run(rollout())


class HangsOnce(verl_job.Engine):
    """An engine whose first generation never ends."""

    version = 0

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def generate_sequences_single(self, prompts: Any) -> Any:
        if not self.begun.is_set():
            self.begun.set()
            await asyncio.Event().wait()
        return await super().generate_sequences_single(prompts)


def test_a_sample_that_the_ledger_gives_up_is_generated_again_from_its_prompt(queue: Any) -> None:
    async def rollout() -> None:
        rollouter = verl_job.Rollouter(Rollout.queue_config)
        engine = rollouter.async_rollout_manager = HangsOnce()
        await rollouter.init_workers()
        await rollouter.set_message_queue_client(queue)
        await rollouter.hold_weights(await asyncio.to_thread(queue.publish, 0))
        prompts = prepare_single_generation_data({"question": torch.tensor([[7]])}, Rollout.queue_config)
        await rollouter.pending_queue.put(RolloutSample(prompts, "sample_0_7", 0, {}))
        # From here on it is verl's own: it takes the prompt, and processes it.
        sample = await rollouter.pending_queue.get()
        generation = asyncio.create_task(rollouter._process_single_sample_streaming(sample))
        await engine.begun.wait()
        (reserved,) = queue._looking().trajectories()
        queue._looking().discard(reserved, "hung")
        await generation
        assert engine.generated == 1 and rollouter.total_generated_samples == 1
        (finished,) = queue._looking().trajectories(state="occupied")
        assert finished.prompt == reserved.prompt and finished.id != reserved.id
        # Question 7: three tokens and four, rewards 1 and 0.
        assert [(each.tokens, each.reward, each.version) for each in finished.members] == [(3, 1.0, 0), (4, 0.0, 0)]
        await queue.rollout.end()

    asyncio.run(rollout())


def test_responses_that_newer_weights_went_on_with_say_so(queue: Any) -> None:
    batch = verl_job.response(
        prepare_single_generation_data({"question": torch.tensor([[7]])}, Rollout.queue_config), 2, 3
    )
    member = _member(batch, 0, _span(batch, 0))
    assert member.version == 2 and member.segments == [berth.Segment(version=3, from_token=2)]


def test_the_task_runner_puts_the_parts_into_verls_job(
    queue: Any, real_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = ("FullyAsyncRollouter", "FullyAsyncTrainer", "MessageQueue", "MessageQueueClient")
    theirs = {name: getattr(fully_async_main, name) for name in named}
    for name in named:
        monkeypatch.setattr(fully_async_main, name, theirs[name])
    runner = adapter._Runner
    monkeypatch.setattr(runner.__mro__[1], "_initialize_components", lambda self, config: None)
    runner()._initialize_components(verl_job.configuration(real_server, tmp_path, total=16))
    for name, ours in (("FullyAsyncRollouter", adapter.Rollouter), ("FullyAsyncTrainer", adapter.Trainer)):
        made = getattr(fully_async_main, name)
        assert issubclass(made.__ray_metadata__.modified_class, ours)
        assert made._default_options == theirs[name]._default_options
    client = fully_async_main.MessageQueueClient(fully_async_main.MessageQueue.remote(None, 6))
    assert client.settings == queue.settings
