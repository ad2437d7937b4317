"""The replay buffer for NeMo-RL's asynchronous GRPO, against a real server.

NeMo-RL itself was not run: PyPI has no release of it. Two stand-ins make the calls that its trajectory collector and its training
loop make of the replay buffer, in their order, written from what the interface is (`docs/adapters.md` says of which commit). Where
NeMo-RL can be imported, the last test compares the methods with those of its own buffer.
"""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nemo_rl_callers import GENERATIONS, PROMPTS, STARTED, Collector, Job, group, names, start, train
from support import thread

import berth
from berth.adapters.nemo_rl import ReplayBuffer, Settings, replay_buffer

RUNS = itertools.count()


@pytest.fixture
def settings(real_server: str, tmp_path: Path) -> Settings:
    """A job on a run of its own, with an age of at most 1."""
    return Settings(
        url=real_server,
        run=f"nemo-rl-{next(RUNS)}",
        directory=str(tmp_path / "trajectories"),
        num_prompts_per_step=PROMPTS,
        num_generations_per_prompt=GENERATIONS,
        max_trajectory_age_steps=1,
        resume_from=0,
    )


@pytest.fixture(autouse=True)
def _no_heartbeat_is_left() -> Iterator[None]:
    yield
    while STARTED:
        STARTED.pop().close()


def next_job(settings: Settings, resume_from: int) -> Settings:
    """The job that is started after this one died."""
    return replace(settings, resume_from=resume_from, session=f"job-{next(RUNS)}")


def ledger_of(settings: Settings) -> berth.Run:
    return berth.connect(settings.url).run(settings.run)


@pytest.mark.parametrize("age", [1, 2, 3])
def test_the_two_loops_train_whole_batches_within_the_bound(
    settings: Settings, age: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="berth")
    job = Job(replace(settings, max_trajectory_age_steps=age))
    collector = Collector(job)
    with thread(collector.collect):
        try:
            batches = train(job, collector, start_step=0, steps=10)
        finally:
            collector.stop()

    assert [len(batch) for batch in batches] == [PROMPTS] * 10
    trained = [name for batch in batches for name in batch]
    assert len(set(trained)) == len(trained)
    ages = [step - int(name.split("@")[1]) for step, batch in enumerate(batches) for name in batch]
    assert all(0 <= each <= age for each in ages)
    # Every finished group was trained, waits to be, or is said to be dropped.
    dropped = [record for record in caplog.records if "is dropped" in record.message]
    assert job.buffer.size() == collector.added - len(trained) - len(dropped)
    # Only a label that was read before newer weights came gives its reservation back, and may then find no place.
    discarded = ledger_of(settings).status().totals.discarded
    assert set(discarded) <= {"older_weights"} and len(dropped) <= discarded.get("older_weights", 0)


def test_to_ask_what_a_target_needs_reserves_it(settings: Settings) -> None:
    job, ledger = Job(settings), ledger_of(settings)

    assert job.begin(target=0) == PROMPTS
    assert (ledger.status().reserved, ledger.status().occupied) == (4, 0)

    assert job.buffer.add(group("a"), 0, 0) == "success"
    assert (ledger.status().reserved, ledger.status().occupied) == (3, 1)
    assert job.buffer.size() == 1


def test_a_group_that_was_not_added_is_asked_for_again(settings: Settings) -> None:
    job = Job(settings)
    assert job.begin(target=0) == 4
    job.buffer.add(group("a"), 0, 0)

    assert job.begin(target=0) == 3
    assert ledger_of(settings).status().reserved == 3


def test_what_was_only_looked_at_is_free_for_another_target(settings: Settings) -> None:
    job = Job(settings)
    job.generate(version=0, target=0)
    assert job.look(target=1) == 4
    assert job.sample(0) is not None

    # The collector has new weights by its next look, and does not come back to target 1.
    assert job.begin(target=2) == 4
    assert ledger_of(settings).status().reserved == 4
    for name in "abcd":
        assert job.buffer.add(group(name), 1, 2) == "success"
    assert names(job.sample(1)) == ["a", "b", "c", "d"]


def test_a_finished_group_takes_the_earliest_place_whatever_its_target(settings: Settings) -> None:
    job = Job(settings)
    assert job.begin(target=0) == 4
    assert job.generate(version=0, target=1) == ["v0-t1-0", "v0-t1-1", "v0-t1-2", "v0-t1-3"]

    assert names(job.sample(0)) == ["v0-t1-0", "v0-t1-1", "v0-t1-2", "v0-t1-3"]

    for name in "abcd":
        job.buffer.add(group(name), 0, 0)
    assert job.buffer.get_debug_info()["target_weight_versions"] == [1, 1, 1, 1]
    sampled = job.sample(1)
    assert names(sampled) == ["a", "b", "c", "d"]
    assert sampled is not None and sampled["avg_trajectory_age"] == 1.0


def test_a_batch_is_sampled_whole_or_not_at_all(settings: Settings) -> None:
    job = Job(settings)
    job.begin(target=0)
    for name in "abc":
        job.buffer.add(group(name), 0, 0)
    assert job.sample(0) is None and not job.ready(0)

    job.buffer.add(group("d"), 0, 0)
    assert job.ready(0)
    assert names(job.sample(0)) == ["a", "b", "c", "d"]
    assert job.buffer.get_last_target_weight_already_generated() == 0
    assert job.begin(target=0) == 0


def test_a_group_without_a_place_is_told_that_the_buffer_is_full(settings: Settings) -> None:
    job = Job(settings)
    job.generate(version=0, target=0)
    job.generate(version=0, target=1)
    assert job.buffer.add(group("a"), 0, 1) == "full"

    job.sample(0)
    assert job.buffer.add(group("a"), 1, 2) == "success"


def test_the_ledger_knows_the_rewards_and_tokens_of_a_group(settings: Settings) -> None:
    job = Job(settings)
    job.begin(target=0)
    job.buffer.add(group("a"), 0, 0)

    (entry,) = ledger_of(settings).trajectories(state="occupied")
    assert entry.meta == {"weight_version": 0, "target_weight_version": 0}
    assert entry.members is not None
    assert [(each.reward, each.tokens, each.version) for each in entry.members] == [(0.0, 3, 0), (1.0, 3, 0)]


def test_one_response_a_prompt_is_an_entry_of_its_own(settings: Settings) -> None:
    job = Job(replace(settings, num_generations_per_prompt=1))
    job.begin(target=0)
    single = group("a")
    single["batch"] = {key: value[:1] for key, value in single["batch"].items()}
    assert job.buffer.add(single, 0, 0) == "success"

    (entry,) = ledger_of(settings).trajectories(state="occupied")
    assert (entry.reward, entry.tokens) == (0.0, 3)


def test_a_trainer_that_died_in_mid_batch_is_given_the_same_batch(settings: Settings) -> None:
    job = Job(settings)
    job.generate(version=0, target=0)
    job.generate(version=0, target=1)
    sampled = names(job.sample(0))

    again = Job(next_job(settings, resume_from=0))
    assert again.ready(0) and again.ready(1)
    assert names(again.sample(0)) == sampled
    with pytest.raises(berth.Fenced):
        job.sample(0)


def test_from_an_older_checkpoint_the_batches_since_then_come_again(settings: Settings, tmp_path: Path) -> None:
    job, checkpoint = Job(settings), str(tmp_path / "replay_buffer.pt")
    job.generate(version=0, target=0)
    job.generate(version=0, target=1)
    job.sample(0)
    assert job.buffer.save_to_path(checkpoint) == 4
    job.generate(version=1, target=2)
    first = names(job.sample(1))
    job.generate(version=2, target=3)
    second = names(job.sample(2))

    again = Job(next_job(settings, resume_from=1))
    restored = again.buffer.load_from_path(
        checkpoint, num_prompts_per_step=PROMPTS, current_training_step=1, max_age_steps=1
    )
    assert restored == {"num_trajectories": 4}
    assert again.ready(1) and again.ready(2) and again.ready(3)
    assert names(again.sample(1)) == first
    assert names(again.sample(2)) == second
    assert names(again.sample(3)) == ["v2-t3-0", "v2-t3-1", "v2-t3-2", "v2-t3-3"]


def test_the_loops_go_on_from_a_checkpoint(settings: Settings) -> None:
    first = Job(settings)
    collector = Collector(first)
    with thread(collector.collect):
        try:
            before = train(first, collector, start_step=0, steps=4)
        finally:
            collector.stop()

    second = Job(next_job(settings, resume_from=2))
    collector = Collector(second, start_step=2)
    with thread(collector.collect):
        try:
            after = train(second, collector, start_step=2, steps=6)
        finally:
            collector.stop()

    assert after[:2] == before[2:]
    assert [len(batch) for batch in after] == [PROMPTS] * 6
    assert all(max(map(int, batch.staleness)) <= 1 for batch in ledger_of(settings).batches())


def test_a_buffer_that_is_started_again_in_its_job_goes_on(settings: Settings) -> None:
    job = Job(settings)
    job.generate(version=0, target=0)
    job.generate(version=0, target=1)
    job.sample(0)
    sampled = names(job.sample(1))

    again = Job(settings)
    assert names(again.sample(1)) == sampled
    again.generate(version=1, target=2)
    assert len(names(again.sample(2))) == PROMPTS


def test_a_buffer_that_is_started_again_reserves_for_the_weights_of_now(settings: Settings) -> None:
    settings = replace(settings, max_trajectory_age_steps=3)
    job = Job(settings)
    for version in range(3):
        job.generate(version, target=version)
        job.sample(version)

    assert Job(settings).begin(target=3) == 4
    assert [entry.version for entry in ledger_of(settings).trajectories(state="reserved")] == [2, 2, 2, 2]


def test_no_more_is_asked_for_than_there_are_places(settings: Settings) -> None:
    job = Job(settings)
    assert job.begin(target=0) == 4
    job.generate(version=0, target=1)
    # Target 1's groups are in buffer 0, and buffer 1 waits for target 0's.
    assert job.begin(target=1) == 0


def test_what_a_dead_buffer_had_reserved_is_free_at_once(settings: Settings) -> None:
    dead = Job(settings)
    dead.begin(target=0)
    dead.begin(target=1)

    again = Job(next_job(settings, resume_from=0))
    assert again.begin(target=0) == 4
    assert ledger_of(settings).status().reserved == 4


def test_new_weights_are_published_by_whoever_names_them_first(settings: Settings, tmp_path: Path) -> None:
    job, ledger = Job(settings), ledger_of(settings)
    job.generate(version=0, target=0)
    job.generate(version=0, target=1)
    job.sample(0)
    job.begin(target=2)
    assert ledger.status().policy_version == 1

    job.sample(1)
    job.buffer.add(group("a"), 2, 2)
    assert ledger.status().policy_version == 2

    for name in "bcd":
        job.buffer.add(group(name), 2, 2)
    job.sample(2)
    job.buffer.save_to_path(str(tmp_path / "replay_buffer.pt"))
    assert ledger.status().policy_version == 3


def test_weights_of_a_batch_that_was_not_sampled_are_refused(settings: Settings) -> None:
    job = Job(settings)
    with pytest.raises(berth.PublishOutOfOrder):
        job.sample(1)


def test_the_bound_is_that_of_the_version_that_the_collector_says(settings: Settings) -> None:
    job = Job(settings)
    job.generate(version=0, target=0)
    job.generate(version=0, target=1)
    job.sample(0)
    job.begin(target=2)

    # It read its version before it asked: its label is older than the reservation, and may not be used beyond buffer 1.
    assert job.buffer.add(group("a"), 0, 2) == "full"
    assert job.buffer.add(group("b"), 1, 2) == "success"
    (entry,) = [each for each in ledger_of(settings).trajectories(state="occupied") if each.buffer == 2]
    assert entry.version == 1


def test_an_older_label_leaves_alone_what_is_reserved_for_newer_weights(settings: Settings) -> None:
    job = Job(settings)
    job.generate(version=0, target=0)
    job.generate(version=0, target=1)
    job.sample(0)
    assert job.look(target=2) == 4

    # Its buffer is full, and the four places beyond are none for it.
    assert job.buffer.add(group("a"), 0, 1) == "full"
    status = ledger_of(settings).status()
    assert (status.reserved, status.totals.discarded) == (4, {})


def test_a_group_that_came_too_late_is_dropped_and_said(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    job = Job(settings)
    for version in range(3):
        job.generate(version, target=version)
        job.sample(version)

    with caplog.at_level(logging.WARNING, logger="berth"):
        assert job.buffer.add(group("late"), 0, 1) == "success"
    assert "a group of weight version 0 is dropped" in caplog.text
    assert job.buffer.size() == 0


def test_a_group_that_the_ledger_gave_up_is_dropped_and_asked_for_again(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    job, ledger = Job(settings), ledger_of(settings)
    job.begin(target=0)
    given_up = min(ledger.trajectories(state="reserved"), key=lambda entry: entry.id)
    ledger.discard(given_up, "operator")

    with caplog.at_level(logging.WARNING, logger="berth"):
        for name in "abcd":
            assert job.buffer.add(group(name), 0, 0) == "success"
    assert f"group {given_up.id} is dropped: operator" in caplog.text
    assert len(list((Path(settings.directory) / settings.run).iterdir())) == 3

    assert job.begin(target=0) == 1
    job.buffer.add(group("e"), 0, 0)
    assert len(names(job.sample(0))) == 4


def test_files_are_kept_while_the_checkpoint_before_the_last_may_need_them(settings: Settings, tmp_path: Path) -> None:
    job, checkpoint = Job(settings), str(tmp_path / "replay_buffer.pt")
    folder = Path(settings.directory) / settings.run
    files = {}
    for version in range(4):
        job.generate(version, target=version)
        job.sample(version)
        if version != 1:
            job.buffer.save_to_path(checkpoint)
            files[version + 1] = len(list(folder.iterdir()))
    # At 3 the last durable one is that of version 1, which needs the batches 1 and 2.
    assert files == {1: 4, 3: 8, 4: 4}


def test_another_run_or_step_than_the_checkpoints_is_refused(settings: Settings, tmp_path: Path) -> None:
    job, checkpoint = Job(settings), tmp_path / "replay_buffer.pt"
    job.buffer.save_to_path(str(checkpoint))
    with pytest.raises(ValueError, match="for step 5"):
        job.buffer.load_from_path(str(checkpoint), PROMPTS, current_training_step=5)
    with pytest.raises(ValueError, match="this buffer has run another"):
        start(replace(settings, run="another")).load_from_path(str(checkpoint))
    checkpoint.write_bytes(b"\x80\x04torch")
    with pytest.raises(ValueError, match="another replay buffer's"):
        job.buffer.load_from_path(str(checkpoint))


def test_other_numbers_than_the_runs_are_refused(settings: Settings) -> None:
    job = Job(settings)
    with pytest.raises(ValueError, match="the run has 4 and 1"):
        job.buffer.sample(num_prompt_groups=5, current_weight_version=0, max_age_steps=1)
    with pytest.raises(ValueError, match="a group of 1 responses"):
        job.buffer.add({"batch": {"total_reward": [1.0], "message_log": [[]]}}, 0, 0)
    with pytest.raises(ValueError, match="max_size"):
        replay_buffer(settings)(max_size=0)


def test_a_drained_run_ends_the_training_loop(settings: Settings) -> None:
    job = Job(settings)
    job.begin(target=0)
    job.buffer.add(group("a"), 0, 0)
    job.buffer.close()
    ledger_of(settings).drain()
    with pytest.raises(RuntimeError, match="drained"):
        job.sample(0)


def test_it_works_as_a_ray_actor(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    # Ray writes a token into the home directory, and reports its use, unless it is told not to.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        pytest.skip("NOT RUN: ray is not installed")

    class Remote:
        """Calls of an actor, each of which is waited for."""

        def __init__(self, actor: Any) -> None:
            self.actor = actor

        def __getattr__(self, name: str) -> Any:
            return lambda *args, **kwargs: ray.get(getattr(self.actor, name).remote(*args, **kwargs))

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        job, actor_class = Job(settings), ray.remote(replay_buffer(settings))
        actor: Any = actor_class.options(runtime_env={"env_vars": {"NEMO_RL": "0"}}).remote(max_size=8)
        job.buffer = Remote(actor)
        collector = Collector(job)
        with thread(collector.collect):
            try:
                batches = train(job, collector, start_step=0, steps=3)
            finally:
                collector.stop()
        assert [len(batch) for batch in batches] == [PROMPTS] * 3

        ray.kill(actor)
        job.buffer = Remote(actor_class.remote(max_size=8))
        assert names(job.sample(2)) == batches[2]
    finally:
        ray.shutdown()


def test_the_methods_are_those_of_nemo_rls_buffer() -> None:
    try:
        from nemo_rl.algorithms.async_utils.replay_buffer import ReplayBufferImpl
    except ImportError:
        pytest.skip("NOT RUN: NeMo-RL is not installed")

    ours = {name: method for name, method in inspect.getmembers(ReplayBuffer, inspect.isfunction) if name[0] != "_"}
    for name in ours.keys() - {"close"}:
        parameters = inspect.signature(ours[name]).parameters
        theirs = inspect.signature(getattr(ReplayBufferImpl, name)).parameters
        assert list(theirs)[: len(parameters)] == list(parameters), name
        more = list(theirs.values())[len(parameters) :]
        assert all(each.default is not inspect.Parameter.empty for each in more), f"{name} must be told {more}"
