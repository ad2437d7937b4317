"""The fake beside a real server: the same calls, drawn at random, leave the same tables."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from conftest import NAMES, Fake, Real
from support import table

import berth

#: How many games are played of each kind. `BERTH_PARITY_SEEDS=200` plays more, of other seeds.
SEEDS = int(os.environ.get("BERTH_PARITY_SEEDS", "4"))


class Twin:
    """One of the two, driven by names and not by ids."""

    def __init__(self, run: berth.Run, config: dict[str, Any]) -> None:
        self.run = run
        self.worker = run.worker("w")
        self.worker.__enter__()
        self.trainer = run.trainer()
        self.trainer.__enter__()
        self.slots: dict[str, berth.Slot] = {}
        self.streamed, self.streamed_of = 0, -1
        self.config = config

    def close(self) -> None:
        self.worker.__exit__(None, None, None)

    def reserve(self, version: int, names: list[str] | None, count: int) -> list[tuple[str, int, int]] | str:
        try:
            slots = self.worker.reserve_up_to(count, version, prompts=names)
        except berth.Refused as refusal:
            return refusal.code
        self.slots.update({str(slot.prompt): slot for slot in slots})
        return [(str(slot.prompt), slot.deadline, slot.attempt) for slot in slots]

    def restart(self) -> None:
        """The worker's process dies without a word, and starts again."""
        self.worker = self.run.worker("w")
        self.worker.__enter__()
        self.slots = {name: self.worker.slot(slot.id) for name, slot in self.slots.items()}

    def occupy(self, name: str) -> object:
        try:
            placed = self.slots[name].occupy(reward=1.0)
        except berth.Refused as refusal:
            return refusal.code
        return placed.state, placed.buffer, placed.slot, placed.buffer_state, placed.reason

    def member(self, name: str, index: int, reward: float, failed: bool) -> object:
        member = self.slots[name].member(index)
        try:
            outcome = member.fail() if failed else member.complete(reward=reward)
        except berth.Refused as refusal:
            return refusal.code
        return outcome

    def feed(self, prompts: list[berth.Prompt]) -> object:
        try:
            return self.run.feed(prompts, offset=self.run.prompts().fed)
        except berth.Refused as refusal:
            return refusal.code

    def drain(self) -> object:
        return self.run.drain()

    def undrain(self) -> object:
        return self.run.undrain()

    def stream(self, least: int, most: int | None) -> object:
        if self.streamed_of != self.trainer.trainer_version:
            self.streamed, self.streamed_of = 0, self.trainer.trainer_version
        try:
            piece = self.trainer.next_piece(self.streamed, min_entries=least, max_entries=most).batch
        except berth.Refused as refusal:
            return refusal.code
        if piece is None:
            return None
        self.streamed += len(piece)
        entries = [(entry.prompt, entry.version, self.members(entry)) for entry in piece]
        return piece.version, piece.offset, piece.complete, piece.final, piece.replayed, entries

    def discard(self, name: str, requeue: bool) -> object:
        names = {slot.id: key for key, slot in self.slots.items()}
        try:
            answer = self.run.discard(self.slots[name].id, "filtered", requeue=requeue)
        except berth.Refused as refusal:
            return refusal.code
        return answer.discarded_from, [(names.get(each.id), each.from_, each.to) for each in answer.promoted]

    @staticmethod
    def members(entry: berth.Trajectory) -> object:
        return [
            (each.index, each.version, each.reward, round(each.advantage or 0.0, 3)) for each in entry.members or ()
        ]

    def take(self) -> object:
        answer = self.trainer.next_batch()
        if answer.batch is None:
            return answer.buffer_state, answer.occupied, answer.needed
        batch = answer.batch
        entries = [(entry.prompt, entry.version, entry.staleness, self.members(entry)) for entry in batch]
        return batch.version, batch.redelivered, batch.replayed, batch.final, entries

    def publish(self) -> object:
        try:
            answer = self.trainer.publish()
        except berth.PublishOutOfOrder as refusal:
            return refusal.code, refusal.expected
        return answer.policy_version, answer.trainer_version

    def resume(self, back: int, mode: berth.ResumeMode) -> object:
        version = max(self.config.get("initial_version", 0), self.trainer.policy_version - back)
        self.trainer = self.run.trainer(resume_from=version, mode=mode)
        self.trainer.__enter__()
        self.streamed_of = -1
        return self.trainer.epoch, self.trainer.trainer_version, self.trainer.policy_version, self.trainer.lineage

    def shown(self) -> object:
        status = self.run.status()
        numbers = (status.policy_version, status.next_buffer, status.trainer_version, status.lineage, status.finished)
        listed = self.run.prompts() if self.config.get("prompt_queue") else None
        explained, distribution = self.run.explain(), self.run.distribution()
        return (
            numbers,
            (status.reserved, status.generating, status.occupied),
            status.prompts,
            [(each.id, each.state, each.attempt, each.reason) for each in listed.prompts] if listed else None,
            (explained.buffer, explained.buffer_state, explained.occupied, explained.needed),
            (explained.admission.free_slots, explained.admission.reserved),
            [(each.prompt, each.slot, each.members_complete) for each in explained.waiting_on],
            [(each.worker, each.finished, each.reserved) for each in self.run.workers()],
            (distribution.admitted.entries, distribution.trained.entries),
            {reason: account.entries for reason, account in distribution.by_reason.items() if account.entries},
            table(self.run),
            status.totals,
            [(each.version, each.entries) for each in self.run.batches()],
        )


class Play:
    """Random calls, each made on both."""

    def __init__(self, chance: random.Random, config: dict[str, Any], real_server: str) -> None:
        name = f"parity-{next(NAMES)}"
        self.chance = chance
        self.config = config
        self.letters = (f"{n}" for n in range(10_000))
        self.twins = [Twin(each.connect().run(name, **config), config) for each in (Fake(), Real(real_server))]

    def both(self, act: str, *arguments: Any) -> None:
        one, other = (getattr(twin, act)(*arguments) for twin in self.twins)
        assert one == other, f"{act}{arguments}"
        shown, expected = (twin.shown() for twin in self.twins)
        assert shown == expected, f"after {act}{arguments}"

    def known(self) -> str | None:
        """One of the newest entries."""
        known = list(self.twins[0].slots)
        return self.chance.choice(known[-12:]) if known else None

    def act(self, act: str) -> None:
        name, chance = self.known(), self.chance
        if act == "reserve":
            version = max(0, self.twins[0].trainer.policy_version - chance.choice([0, 0, 0, 1, 2]))
            names = [next(self.letters) for _ in range(chance.randint(1, 4))]
            self.both("reserve", version, None if self.config.get("prompt_queue") else names, len(names))
        elif act == "resume":
            self.both("resume", chance.randint(0, 2), chance.choice(["replay", "rewind"]))
        elif act == "member":
            if name is not None:
                index = chance.randrange(self.config["group_candidates"])
                self.both("member", name, index, chance.choice([0.0, 1.0]), chance.random() < 0.15)
        elif act == "discard":
            if name is not None:
                self.both("discard", name, bool(self.config.get("prompt_queue")) and chance.random() < 0.5)
        elif act == "occupy":
            if name is not None:
                self.both("occupy", name)
        elif act == "feed":
            lengths = [chance.choice([None, 100, 200, 300]) for _ in range(chance.randint(1, 6))]
            self.both("feed", [berth.Prompt(id=next(self.letters), expected_tokens=length) for length in lengths])
        elif act == "stream":
            least = chance.randint(1, 2)
            self.both("stream", least, chance.choice([None, least]))
        else:
            self.both(act)

    def close(self) -> None:
        for twin in self.twins:
            twin.close()


FEATURES = {
    "single": (),
    "groups": ("groups",),
    "prompts": ("prompts",),
    "streaming": ("streaming",),
    "together": ("groups", "prompts", "streaming"),
}


def game(chance: random.Random, features: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, float]]:
    """A run's configuration, and how likely each call is."""
    batch_size, eta = chance.randint(1, 4), chance.randint(0, 3)
    config: dict[str, Any] = {"batch_size": batch_size, "max_staleness": eta}
    acts: dict[str, float] = {"reserve": 5, "occupy": 8, "discard": 2, "take": 3, "publish": 3, "resume": 0.5}
    acts["restart"] = 0.5
    if chance.random() < 0.5:
        config["slots_per_buffer"] = batch_size + chance.randint(1, 3)
    if chance.random() < 0.5:
        config["max_concurrency"] = chance.randint(4, 12)
    if "groups" in features:
        config |= {"group_size": 2, "group_candidates": 3, "drop_zero_variance": chance.random() < 0.5}
        config |= {"auto_occupy": chance.random() < 0.7, "adopt_groups": chance.random() < 0.7}
        acts |= {"member": 16, "occupy": 2, "restart": 1}
    if "prompts" in features:
        config |= {"prompt_queue": True, "max_attempts": 2, "order": chance.choice(["fed", "longest_first"])}
        config |= {
            "order_window": chance.randint(1, 5),
            "drop_on": chance.choice([[], ["surplus"], ["worker_restarted"]]),
        }
        acts |= {"feed": 3}
    if "streaming" in features:
        acts |= {"stream": 4, "take": 1}
    if features and features != ("groups",):
        config["final_batch"] = chance.choice(["short", "discard"])
        acts |= {"drain": 0.3, "undrain": 0.5}
    return config, acts


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_fake_places_entries_as_the_server_does(real_server: str, seed: int, kind: str) -> None:
    chance = random.Random(f"{kind} {seed}")
    config, acts = game(chance, FEATURES[kind])
    play = Play(chance, config, real_server)
    for act in chance.choices(list(acts), list(acts.values()), k=60):
        play.act(act)
    play.close()
