"""TRL's asynchronous GRPO trainer on a run's batches: the real trainer on a CPU, with a tiny model that is drawn.

Two things of TRL 1.16 need a GPU, and are stood in for: the attention kernel that it fetches, and the look at the GPU's name.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import fill, thread

import berth
from berth.fake import FakeServer

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest.importorskip("trl", reason="NOT RUN: TRL is not installed (pip install './clients/python[adapters]')")

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, TrainerCallback
from trl.experimental.async_grpo import async_grpo_trainer, packing
from trl.experimental.async_grpo.async_grpo_config import AsyncGRPOConfig
from trl.experimental.async_grpo.async_grpo_trainer import AsyncGRPOTrainer
from trl_rollout import PROMPT_TOKENS, VOCABULARY, Engine, roll_out

from berth.adapters.trl import RolloutSource, delete_samples, member_results, read_samples, write_samples

NAMES = itertools.count()
#: Of the runs: 4 groups of 2.
SHAPE: dict[str, Any] = {"batch_size": 4, "group_size": 2, "max_staleness": 1, "final_batch": "discard"}

Completion = tuple[int, ...]


def attention(q: Any, k: Any, v: Any, starts_q: Any, starts_k: Any, _q: int, _k: int, **options: Any) -> Any:
    """What the kernel computes, in plain torch: in each segment, queries attend to the keys up to their own."""
    assert options["causal"] and options["window_size"] == (-1, -1)
    outputs = []
    for i in range(len(starts_q) - 1):
        query, key, value = q[starts_q[i] : starts_q[i + 1]], *(x[starts_k[i] : starts_k[i + 1]] for x in (k, v))
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query, key) * options["softmax_scale"]
        seen = torch.ones(len(query), len(key), dtype=torch.bool).tril(len(key) - len(query))
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        outputs.append(torch.einsum("hqk,khd->qhd", weights, value))
    return torch.cat(outputs)


def stand_in_for_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces what TRL needs a GPU for."""
    monkeypatch.setattr(packing, "_flash_attn", lambda: SimpleNamespace(flash_attn_varlen_func=attention))
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)


@pytest.fixture(autouse=True)
def _without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_the_gpu(monkeypatch)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model and its tokenizer, on the disk."""
    directory = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=False,
        eos_token_id=1,
    )
    Qwen2ForCausalLM(config).save_pretrained(directory)
    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{i}": i for i in range(3, VOCABULARY)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    fast: Any = PreTrainedTokenizerFast
    fast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>").save_pretrained(directory)
    return directory


class NoTransfer:
    """Sends no weights anywhere."""

    def init_weight_transfer(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def destroy(self) -> None: ...
    def send_weights(self, iterator: Iterator[Any]) -> None:
        for _ in iterator:
            pass


class RecordingTrainer(AsyncGRPOTrainer):  # type: ignore[misc, unused-ignore]
    """Notes what each step trains: the completions, each with its advantage."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.trained: dict[int, dict[Completion, float]] = {}

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        # Ranks' rows are padded to the longest.
        terms = inputs["token_index"][0] >= 0
        targets = inputs["shift_labels"][0][inputs["token_index"][0][terms]].tolist()
        samples, advantages = inputs["segment_id"][0][terms].tolist(), inputs["advantages"][0][terms].tolist()
        step = self.trained.setdefault(self.state.global_step, {})
        for i in range(max(samples) + 1):
            completion = tuple(target for target, sample in zip(targets, samples, strict=True) if sample == i)
            assert completion not in step
            step[completion] = advantages[samples.index(i)]
        return super().training_step(model, inputs, num_items_in_batch)  # type: ignore[no-untyped-call, unused-ignore]


def trainer_on(run: berth.Run, model: Path, output: Path, callbacks: tuple[Any, ...] = (), **settings: Any) -> Any:
    """The trainer of the documentation, with settings that fit ``SHAPE``."""
    settings = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "save_strategy": "no", **settings}
    args = AsyncGRPOConfig(
        str(output),
        num_generations=2,
        max_staleness=1,
        token_budget=0,
        learning_rate=1e-2,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
        **settings,
    )
    source = RolloutSource(run, weights="file:///weights/{version}")
    trainer = RecordingTrainer(
        model=str(model),
        args=args,
        train_dataset=Dataset.from_dict({"prompt": ["?"]}),
        rollout_worker=source,
        weight_transfer=NoTransfer(),
        callbacks=list(callbacks),
    )
    source.attach(trainer)
    return trainer


def in_the_ledger(run: berth.Run, version: int) -> dict[Completion, Any]:
    """The completions of a batch, each with the advantage that it should have been trained with."""
    completions = {}
    for entry in run.batch(version):
        for member in entry.members or []:
            whole = entry.payload is not None
            samples = read_samples(entry.payload or member.payload or "")
            sample = samples[member.index if whole else 0]
            advantage = sample.advantage if whole else member.advantage
            assert advantage is not None
            completions[tuple(sample.input_ids[PROMPT_TOKENS:].tolist())] = pytest.approx(advantage)
    return completions


def roll_out_members(run: berth.Run, engine: Engine, directory: Path) -> None:
    """A rollout process that hands in each member as it is finished, with a payload of its own."""
    with run.worker("rollout-1") as worker:
        for slot in worker.reserve(lambda: engine.version, refresh=engine.load):
            for member, sample in zip(slot.members, engine.generate(2), strict=False):
                [result] = member_results([sample])
                payload = write_samples([sample], directory)
                member.complete(reward=result.reward, tokens=result.tokens, payload=payload)


@pytest.fixture
def a_run(real_server: str) -> Iterator[Callable[[int], berth.Run]]:
    """Makes a run with prompts for so many batches, which ends with them. After far too long it is deleted under its processes."""
    limits = []

    def make(batches: int) -> berth.Run:
        run = berth.connect(real_server).run(f"trl-{next(NAMES)}", **SHAPE, prompt_queue=True)
        run.feed([f"q-{n}" for n in range(4 * batches)])
        run.drain()
        limits.append(threading.Timer(600, run.delete))
        limits[-1].start()
        return run

    yield make
    for limit in limits:
        limit.cancel()


@pytest.mark.parametrize(
    ("settings", "steps_per_batch"),
    [
        ({"gradient_accumulation_steps": 4, "weight_sync_steps": 1}, 1),
        ({"gradient_accumulation_steps": 2, "weight_sync_steps": 2}, 2),
    ],
)
def test_the_trainer_trains_the_batches_of_the_ledger_and_publishes_each(
    a_run: Callable[[int], berth.Run], model: Path, tmp_path: Path, settings: dict[str, Any], steps_per_batch: int
) -> None:
    batches = 3
    run = a_run(batches)
    trainer = trainer_on(run, model, tmp_path / "out", max_steps=batches * steps_per_batch, **settings)
    before = {name: weights.clone() for name, weights in trainer.model.named_parameters()}

    with (
        thread(lambda: roll_out(run, Engine(seed=1), tmp_path)),
        thread(lambda: roll_out_members(run, Engine(seed=2), tmp_path)),
    ):
        trainer.train()

    for version in range(batches):
        steps = [trainer.trained[version * steps_per_batch + i] for i in range(steps_per_batch)]
        trained = {completion: advantage for step in steps for completion, advantage in step.items()}
        assert sum(len(step) for step in steps) == 8
        assert trained == in_the_ledger(run, version)
        assert all(0 <= (entry.staleness or 0) <= 1 for entry in run.batch(version))
    assert len(trainer.trained) == batches * steps_per_batch

    assert run.weights().version == batches
    assert run.weights().reference == f"file:///weights/{batches}"
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert all(entry["sample/staleness_max"] <= 1 for entry in logged)
    assert not any("sample/dropped_stale_total" in entry for entry in logged)
    assert sum("berth/wait_s" in entry for entry in logged) == batches
    assert all(not torch.equal(before[name], weights) for name, weights in trainer.model.named_parameters())


def test_the_files_of_what_a_checkpoint_has_are_released_and_deleted(
    a_run: Callable[[int], berth.Run], model: Path, tmp_path: Path
) -> None:
    run, samples = a_run(2), tmp_path / "samples"
    samples.mkdir()
    trainer = trainer_on(run, model, tmp_path / "out", max_steps=2, save_strategy="steps", save_steps=2)
    with thread(lambda: roll_out_members(run, Engine(seed=1), samples)):
        trainer.train()
    written = {path.as_uri() for path in samples.iterdir()}
    assert len(written) == 16

    for released in run.released():
        for payload in released.payloads:
            delete_samples(payload)
            written.remove(payload)
        if not written:
            break
    assert not list(samples.iterdir())


def test_ranks_share_each_batch_and_end_together_with_the_run(
    a_run: Callable[[int], berth.Run], real_server: str, model: Path, tmp_path: Path
) -> None:
    run = a_run(2)
    script = str(Path(__file__).with_name("trl_rank.py"))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    with thread(lambda: roll_out(run, Engine(seed=1), tmp_path)):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([*torchrun, real_server, run.name, str(model), str(tmp_path)], env=environment, check=True)

    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert [[len(step) for step in rank] for rank in ranks] == [[4, 4], [4, 4]]
    for version in (0, 1):
        trained = {tuple(completion) for rank in ranks for completion in rank[version]}
        assert trained == set(in_the_ledger(run, version))


class Dies(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Ends the trainer when it has trained so many steps, with the next batch in its hands."""

    def __init__(self, after: int) -> None:
        self._after = after

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self._after:
            raise KeyboardInterrupt


def test_a_trainer_that_is_started_again_trains_nothing_twice_and_loses_nothing(
    a_run: Callable[[int], berth.Run], real_server: str, model: Path, tmp_path: Path
) -> None:
    """The rollout is another process, and goes on. The run has prompts for six batches and ends with them."""
    run = a_run(6)
    script = Path(__file__).with_name("trl_rollout.py")
    rollout = subprocess.Popen([sys.executable, str(script), real_server, run.name, str(tmp_path)])
    try:
        settings: dict[str, Any] = {"max_steps": 100, "save_strategy": "steps", "save_steps": 2, "logging_strategy": "no"}
        first = trainer_on(run, model, tmp_path / "out", (Dies(after=3),), **settings)
        with pytest.raises(KeyboardInterrupt):
            first.train()
        assert run.weights().version == 3
        batches = {version: in_the_ledger(run, version) for version in (2, 3)}

        second = trainer_on(run, model, tmp_path / "out", **settings)
        second.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
        assert rollout.wait(60) == 0
    finally:
        rollout.kill()
        rollout.wait()

    assert sorted(first.trained) == [0, 1, 2]
    # Those that the checkpoint does not hold are trained again, as they were.
    assert sorted(second.trained) == [2, 3, 4, 5]
    assert first.trained[2] == second.trained[2] == batches[2]
    assert second.trained[3] == batches[3]
    # What the last checkpoint's model was trained on: each prompt's group once.
    history = [first.trained[0], first.trained[1], *(second.trained[step] for step in (2, 3, 4, 5))]
    assert len({completion for step in history for completion in step}) == 6 * 8
    status = run.status()
    assert status.prompts is not None and status.prompts["trained"] == 24
    assert (status.policy_version, status.finished) == (6, True)
    # The last step was saved, although no multiple of save_steps made it the end: older batches are not needed.
    assert (tmp_path / "out" / "checkpoint-6").is_dir()
    assert status.oldest_kept is None or status.oldest_kept >= 5


def test_a_trainer_that_comes_to_a_finished_run_says_so(fake: FakeServer) -> None:
    run = fake.connect().run("finished", **SHAPE)
    run.drain()
    source = attached(run)
    with pytest.raises(RuntimeError, match="run finished is finished: there is nothing left to train"):
        source.start()


def fitting(**changes: Any) -> Any:
    """Settings that fit ``SHAPE``."""
    settings = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "weight_sync_steps": 1,
        "num_generations": 2,
        "max_staleness": 1,
        "token_budget": 0,
        "save_strategy": "no",
        "save_steps": 500,
    }
    return SimpleNamespace(**{**settings, **changes})


def attached(run: berth.Run, *, step: int = 0, processes: int = 1, **changes: Any) -> RolloutSource:
    """A source that is attached to a stand-in of the trainer."""
    source = RolloutSource(run)
    trainer = SimpleNamespace(
        args=fitting(**changes),
        accelerator=SimpleNamespace(is_main_process=True, num_processes=processes),
        rollout_worker=source,
        state=SimpleNamespace(global_step=step),
        add_callback=lambda _: None,
        get_train_dataloader=lambda: None,
    )
    source.attach(trainer)
    return source


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gradient_accumulation_steps": 8}, r"is 8 samples, but .* × 1 processes × weight_sync_steps 1 = 16"),
        ({"processes": 2}, r"is 8 samples, but .* × 2 processes × weight_sync_steps 1 = 16"),
        ({"weight_sync_steps": 2}, r"is 8 samples, but .* × weight_sync_steps 2 = 16"),
        ({"num_generations": 8}, "num_generations is 8, and group_size 2"),
        ({"max_staleness": 0}, "max_staleness is 0, and the run's 1: TRL would drop"),
        ({"token_budget": None}, "token_budget must be 0"),
        ({"token_budget": 4096}, "token_budget must be 0"),
        (
            {"weight_sync_steps": 2, "gradient_accumulation_steps": 2, "save_strategy": "steps", "save_steps": 5},
            "save_steps 5 is no multiple of weight_sync_steps 2",
        ),
    ],
)
def test_settings_that_do_not_fit_the_run_are_refused(fake: FakeServer, changes: dict[str, Any], said: str) -> None:
    run = fake.connect().run("refusing", **SHAPE)
    attached(run)
    with pytest.raises(ValueError, match=said):
        attached(run, **changes)


def test_a_run_with_a_short_last_batch_is_refused(fake: FakeServer) -> None:
    run = fake.connect().run("short", **{**SHAPE, "final_batch": "short"})
    with pytest.raises(ValueError, match="create the run with final_batch='discard'"):
        attached(run)


def test_a_checkpoint_inside_a_batch_is_refused(fake: FakeServer) -> None:
    run = fake.connect().run("inside", **SHAPE)
    source = attached(run, step=3, weight_sync_steps=2, gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="the checkpoint of step 3 is inside a batch of 2 steps"):
        source.start()


def test_a_source_that_is_not_attached_does_not_start(fake: FakeServer) -> None:
    with pytest.raises(RuntimeError, match=r"source.attach\(trainer\)"):
        RolloutSource(fake.connect().run("loose", **SHAPE)).start()


def test_an_entry_without_samples_is_named(fake: FakeServer) -> None:
    run = fake.connect().run("empty", **{**SHAPE, "batch_size": 8, "group_size": 1})
    fill(run, 8)
    source = attached(run, num_generations=1)
    with pytest.raises(ValueError, match=r"entry .* of batch 0 has 0 samples and not 1"):
        source.start()


def test_samples_come_back_from_their_file_as_they_were(tmp_path: Path) -> None:
    samples = Engine(seed=3).generate(2)
    samples[1].metrics["reward"] = float("nan")
    samples[1].input_ids = np.append(samples[1].input_ids, 7)
    samples[1].completion_mask = np.append(samples[1].completion_mask, 1)
    samples[1].old_log_probs = np.append(samples[1].old_log_probs, np.float32(-0.5))

    read = read_samples(write_samples(samples, tmp_path))

    for sample, original in zip(read, samples, strict=True):
        for name in ("input_ids", "completion_mask", "old_log_probs"):
            assert np.array_equal(getattr(sample, name), getattr(original, name))
        assert sample.advantage == original.advantage
        assert (sample.prompt, sample.completion) == (original.prompt, original.completion)
    assert [(each.index, each.reward, each.tokens) for each in member_results(read)] == [
        (0, samples[0].metrics["reward"], 5),
        (1, None, 6),
    ]
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]


def test_files_are_deleted_by_their_reference_and_nothing_else_is(tmp_path: Path) -> None:
    reference = write_samples(Engine(seed=3).generate(1), tmp_path)
    delete_samples(reference)
    delete_samples(reference)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="no reference of write_samples"):
        delete_samples((tmp_path / "weights").as_uri())


def test_samples_whose_arrays_differ_in_length_are_not_written(tmp_path: Path) -> None:
    samples = Engine(seed=3).generate(1)
    samples[0].old_log_probs = samples[0].old_log_probs[1:]
    with pytest.raises(ValueError, match="must be of one length"):
        write_samples(samples, tmp_path)
    assert not list(tmp_path.iterdir())
