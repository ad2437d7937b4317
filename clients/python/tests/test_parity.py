"""The fake beside a real server: the same calls, drawn at random, are answered alike and leave the same tables."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from conftest import NAMES, Fake, Real
from servers import wait_until
from twins import MemberAct, Twin, Weights

import berth
from berth._heartbeat import HeartbeatThread

#: How many games are played of each kind. `BERTH_PARITY_SEEDS=200` plays more, of other seeds.
SEEDS = int(os.environ.get("BERTH_PARITY_SEEDS", "4"))
#: No lease runs out within a game.
LEASE_MS = 3_600_000


@pytest.fixture(autouse=True)
def heartbeats_are_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a thread of its own says and acknowledges would not come at the same moment in both."""
    monkeypatch.setattr(HeartbeatThread, "_beat_until_stopped", lambda self: None)


class Play:
    """Random calls, each made on both."""

    def __init__(self, chance: random.Random, config: dict[str, Any], streams: bool, real_server: str) -> None:
        name = f"parity-{next(NAMES)}"
        self.chance = chance
        self.config = config
        self.has_groups = "group_size" in config
        self.has_queue = bool(config.get("prompt_queue"))
        self.streams = streams
        self.oldest_kept: int | None = None
        self.letters = (f"{n}" for n in range(10_000))
        fake, real = Fake(), Real(real_server)
        self.twins = [
            Twin(fake.connect(), name, config, lambda run: fake.server.advance(2)),
            Twin(real.connect(), name, config, lambda run: wait_until(lambda: run.status().reserved == 0)),
        ]

    def both(self, act: str, *arguments: Any) -> Any:
        """Makes the call on both. Returns the answer that both gave."""
        one, other = (getattr(twin, act)(*arguments) for twin in self.twins)
        assert one == other, f"{act}{arguments}"
        self.forget()
        shown, expected = (twin.shown() for twin in self.twins)
        assert shown == expected, f"after {act}{arguments}"
        return one

    def forget(self) -> None:
        """The fake forgets batches that are not kept at once, the server when it sweeps next: that is waited for."""
        fake, real = self.twins
        kept = fake.run.status().oldest_kept
        if kept != self.oldest_kept:
            self.oldest_kept = kept
            for name in [name for name in fake.slots if not fake.knows(name)]:
                wait_until(partial(lambda name: not real.knows(name), name))
                del fake.slots[name], real.slots[name]

    def compare_lists(self) -> None:
        listed, expected = (twin.lists() for twin in self.twins)
        assert listed == expected

    def close(self) -> None:
        for twin in self.twins:
            twin.close()

    # What is drawn.

    @property
    def trainer(self) -> berth.Trainer:
        return self.twins[0].trainer

    def worker(self) -> str:
        return self.chance.choice("vw")

    def known(self) -> str | None:
        """One of the newest entries; mostly one that is still generated, since most acts are of use only then."""
        known = list(self.twins[0].slots)[-16:]
        generated = {slot.id for slot in self.twins[0].run.trajectories(state="reserved")}
        reserved = [name for name in known if self.twins[0].slots[name].id in generated]
        if reserved and self.chance.random() < 0.7:
            return self.chance.choice(reserved)
        return self.chance.choice(known) if known else None

    def weights(self, back: list[int]) -> Weights:
        """Mostly those that are out, seldom of an older lineage."""
        lineage = self.trainer.lineage - (self.chance.random() < 0.1)
        return max(0, self.trainer.policy_version - self.chance.choice(back)), max(0, lineage)

    def segments(self) -> tuple[tuple[Weights, int], ...]:
        """Seldom any, and not always in order."""
        count = self.chance.choice([0] * 10 + [1, 1, 2])
        return tuple((self.weights([0] * 5 + [1, -1]), self.chance.choice([0, 10, 20, 30])) for _ in range(count))

    def a_member(self) -> MemberAct:
        chance = self.chance
        index = chance.randrange(self.config["group_candidates"]) if chance.random() < 0.98 else 7
        weights = self.weights([0, 0, 1, 2]) if chance.random() < 0.3 else None
        reward = chance.choice([0.0, 1.0, 0.0, 1.0, None])
        return MemberAct(index, reward, chance.random() < 0.15, weights, self.segments())

    def act(self, act: str) -> None:
        getattr(self, act)()

    # Acts.

    def reserve(self) -> None:
        chance = self.chance
        names = [next(self.letters) for _ in range(chance.randint(1, 4))]
        prompts = None if self.has_queue else names
        adopt = chance.choice([None, None, True, False])
        self.both("reserve", self.worker(), self.weights([0] * 8 + [1, 2, -1]), prompts, len(names), adopt)

    def of_known(self, act: Callable[[str], None]) -> None:
        name = self.known()
        if name is not None:
            act(name)

    def occupy(self) -> None:
        self.of_known(lambda name: self.both("occupy", self.worker(), name, self.segments()))

    def whole(self) -> None:
        members = [self.a_member() for _ in range(self.chance.randint(1, 3))]
        self.of_known(lambda name: self.both("whole", self.worker(), name, members))

    def member(self) -> None:
        self.of_known(lambda name: self.both("member", self.worker(), name, self.a_member()))

    def segment(self) -> None:
        chance = self.chance
        index = chance.randrange(3) if self.has_groups != (chance.random() < 0.05) else None
        weights, from_token = self.weights([0, 0, 0, 1, -1]), chance.choice([0, 10, 20, 30])
        self.of_known(lambda name: self.both("segment", self.worker(), name, weights, from_token, index))

    def discard(self) -> None:
        requeue = self.chance.random() < (0.5 if self.has_queue else 0.05)
        by = self.chance.choice([None, "v", "w"])
        self.of_known(lambda name: self.both("discard", name, by, requeue))

    def claim(self) -> None:
        self.of_known(lambda name: self.both("claim", self.worker(), name))

    def look(self) -> None:
        self.of_known(lambda name: self.both("look", name))

    def restart(self) -> None:
        self.both("restart", self.worker())
        if self.has_groups:
            self.reserve()

    def heartbeat(self) -> None:
        self.both("heartbeat", self.worker())

    def time_out(self) -> None:
        self.both("time_out")

    def take(self) -> None:
        self.both("take")

    def stream(self) -> None:
        least = self.chance.randint(1, 2)
        self.both("stream", least, self.chance.choice([None, least]))

    def train(self) -> None:
        """A step of the trainer, if there is a batch."""
        batch, *_ = self.both("take")
        if batch is not None:
            self.both("publish", None, None)

    def publish(self) -> None:
        weights = self.chance.choice([None, f"file:///{next(self.letters)}"])
        at = self.trainer.trainer_version
        version = None if self.chance.random() < 0.8 else max(0, at - self.chance.randint(-2, 2))
        self.both("publish", weights, version)

    def checkpoint(self) -> None:
        self.both("checkpoint", max(0, self.trainer.trainer_version - self.chance.choice([-1, 0, 0, 1, 2])))

    def resume(self) -> None:
        self.begin_a_batch()
        mode, force = self.chance.choice(["replay", "rewind"]), self.chance.random() < 0.2
        self.both("resume", max(0, self.trainer.policy_version - self.chance.choice([-1, 0, 1, 1, 2])), mode, force)

    def jump(self) -> None:
        self.begin_a_batch()
        self.both("resume", self.trainer.policy_version + self.chance.randint(1, 3), "replay", True)

    def begin_a_batch(self) -> None:
        """Where batches are streamed, a trainer may be gone in the middle of one."""
        if self.streams and self.chance.random() < 0.7:
            self.both("stream", 1, 1)

    def batch(self) -> None:
        oldest = self.twins[0].run.status().oldest_kept or 0
        # Below that there may have been a gap, of which the server knows until it has swept.
        version = max(oldest, self.trainer.policy_version - self.chance.choice([-1, 0, 1, 1, 2]))
        self.both("batch", version, self.chance.choice([None, 0, 1]), self.chance.choice([None, 1, 2]))

    def feed(self) -> None:
        lengths = [self.chance.choice([None, 100, 200, 300]) for _ in range(self.chance.randint(1, 6))]
        self.both("feed", [berth.Prompt(id=next(self.letters), expected_tokens=length) for length in lengths])

    def drain(self) -> None:
        self.both("drain", self.chance.choice([None, None, "keep"]))

    def undrain(self) -> None:
        self.both("undrain")

    def configure(self) -> None:
        changes = [{"max_concurrency": None}, {"max_concurrency": self.chance.randint(2, 12)}]
        self.both("configure", self.chance.choice([*changes, {"keep_batches": self.chance.randint(1, 4)}]))


FEATURES = {
    "single": (),
    "groups": ("groups",),
    "prompts": ("prompts",),
    "streaming": ("streaming",),
    "together": ("groups", "prompts", "streaming"),
}


def game(chance: random.Random, features: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, float]]:
    """A run's configuration, and how likely each call is."""
    batch_size, eta = chance.choice([1, 1, 2, 2, 3, 4]), chance.randint(0, 3)
    config: dict[str, Any] = {"batch_size": batch_size, "max_staleness": eta, "lease_ms": LEASE_MS}
    acts: dict[str, float] = {"reserve": 6, "occupy": 10, "discard": 1, "take": 1, "train": 3, "publish": 0.5}
    acts |= {"resume": 1, "restart": 0.3, "checkpoint": 0.3, "jump": 0.15, "segment": 1, "claim": 0.5, "configure": 0.3}
    acts |= {"batch": 0.3, "look": 1, "heartbeat": 0.5, "time_out": 0.2}
    if chance.random() < 0.5:
        config["slots_per_buffer"] = batch_size + chance.randint(1, 3)
    if chance.random() < 0.5:
        config["max_concurrency"] = chance.randint(4, 12)
    if "groups" in features:
        config |= {"group_size": 2, "group_candidates": 3, "drop_zero_variance": chance.random() < 0.5}
        config |= {"auto_occupy": chance.random() < 0.7, "adopt_groups": chance.random() < 0.7}
        acts |= {"member": 16, "whole": 3, "occupy": 2, "restart": 1}
    if "prompts" in features:
        config |= {"prompt_queue": True, "max_attempts": 2, "order": chance.choice(["fed", "longest_first"])}
        config |= {
            "order_window": chance.randint(1, 5),
            "drop_on": chance.choice([[], ["surplus"], ["worker_restarted"], ["timed_out"]]),
        }
        acts |= {"feed": 3}
    if "streaming" in features:
        acts |= {"stream": 4, "take": 0.5, "train": 1.5}
    if features and features != ("groups",):
        config["final_batch"] = chance.choice(["short", "discard"])
        acts |= {"drain": 0.3, "undrain": 0.5}
    return config, acts


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_fake_answers_and_places_entries_as_the_server_does(real_server: str, seed: int, kind: str) -> None:
    chance = random.Random(f"{kind} {seed}")
    config, acts = game(chance, FEATURES[kind])
    play = Play(chance, config, "stream" in acts, real_server)
    for number, act in enumerate(chance.choices(list(acts), list(acts.values()), k=60)):
        play.act(act)
        if number % 20 == 19:
            play.compare_lists()
    play.close()
