"""A rollout process for TRL with a made-up engine: tokens and rewards are drawn. `python trl_rollout.py URL RUN DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import berth
from berth.adapters.trl import RolloutSample, member_results, write_samples

PROMPT_TOKENS = 3
COMPLETION_TOKENS = 5
VOCABULARY = 64


class Engine:
    """Stands in for an inference engine."""

    version = 0

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def load(self, weights: berth.Weights) -> None:
        self.version = weights.version

    def generate(self, count: int) -> list[RolloutSample]:
        """A group: one prompt, and for each member a completion, its log-probs and its reward."""
        prompt = self._random.integers(3, VOCABULARY, PROMPT_TOKENS)
        rewards = self._random.permutation(count) / count
        return [self._sample(prompt, float(reward), float(reward - rewards.mean())) for reward in rewards]

    def _sample(self, prompt: np.ndarray, reward: float, advantage: float) -> RolloutSample:
        completion = self._random.integers(3, VOCABULARY, COMPLETION_TOKENS)
        return RolloutSample(
            prompt=[{"role": "user", "content": str(prompt)}],
            completion=[{"role": "assistant", "content": str(completion)}],
            input_ids=np.concatenate([prompt, completion]),
            completion_mask=np.array([0] * PROMPT_TOKENS + [1] * COMPLETION_TOKENS),
            old_log_probs=np.full(PROMPT_TOKENS + COMPLETION_TOKENS, -np.log(VOCABULARY), dtype=np.float32),
            advantage=advantage,
            model_version=0,
            group_id=0,
            metrics={"reward": reward},
        )


def roll_out(run: berth.Run, engine: Engine, directory: Path) -> None:
    """Generates groups until the run is finished."""
    group_size = run.status().config.group_size
    with run.worker("rollout-0") as worker:
        for slot in worker.reserve(lambda: engine.version, refresh=engine.load):
            samples = engine.generate(group_size)
            slot.occupy(payload=write_samples(samples, directory), members=member_results(samples))


if __name__ == "__main__":
    url, name, directory = sys.argv[1:]
    roll_out(berth.connect(url).run(name), Engine(seed=1), Path(directory))
