"""The fake beside a real server: the same calls, drawn at random, leave the same tables."""

from __future__ import annotations

import random
from typing import Any

import pytest
from conftest import NAMES, Fake, Real
from support import table

import berth


class Twin:
    """One of the two, driven by names and not by ids."""

    def __init__(self, run: berth.Run, config: dict[str, Any]) -> None:
        self.run = run
        self.worker = run.worker("w")
        self.worker.__enter__()
        self.trainer = run.trainer()
        self.trainer.__enter__()
        self.slots: dict[str, berth.Slot] = {}
        self.config = config

    def close(self) -> None:
        self.worker.__exit__(None, None, None)

    def reserve(self, version: int, names: list[str]) -> list[tuple[str, int, int]] | str:
        try:
            slots = self.worker.reserve_up_to(len(names), version, prompts=names)
        except berth.Refused as refusal:
            return refusal.code
        self.slots.update({str(slot.prompt): slot for slot in slots})
        return [(str(slot.prompt), slot.deadline, slot.attempt) for slot in slots]

    def occupy(self, name: str) -> tuple[object, ...]:
        placed = self.slots[name].occupy(reward=1.0)
        return placed.state, placed.buffer, placed.slot, placed.buffer_state, placed.reason

    def discard(self, name: str) -> object:
        names = {slot.id: key for key, slot in self.slots.items()}
        try:
            answer = self.run.discard(self.slots[name].id, "filtered")
        except berth.Refused as refusal:
            return refusal.code
        return answer.discarded_from, [(names[each.id], each.from_, each.to) for each in answer.promoted]

    def take(self) -> object:
        answer = self.trainer.next_batch()
        if answer.batch is None:
            return answer.buffer_state, answer.occupied, answer.needed
        batch = answer.batch
        entries = [(entry.prompt, entry.version, entry.staleness) for entry in batch]
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
        return self.trainer.epoch, self.trainer.trainer_version, self.trainer.policy_version, self.trainer.lineage

    def shown(self) -> object:
        status = self.run.status()
        numbers = (status.policy_version, status.next_buffer, status.trainer_version, status.lineage)
        return numbers, table(self.run), status.totals, [(each.version, each.entries) for each in self.run.batches()]


@pytest.mark.parametrize("seed", range(8))
def test_the_fake_places_entries_as_the_server_does(real_server: str, seed: int) -> None:
    chance = random.Random(seed)
    batch_size, eta = chance.randint(1, 4), chance.randint(0, 3)
    config = {"batch_size": batch_size, "max_staleness": eta}
    if chance.random() < 0.5:
        config["slots_per_buffer"] = batch_size + chance.randint(1, 3)
    if chance.random() < 0.5:
        config["max_concurrency"] = chance.randint(2, 12)
    name = f"parity-{next(NAMES)}"
    twins = [Twin(each.connect().run(name, **config), config) for each in (Fake(), Real(real_server))]
    letters = (f"{n}" for n in range(10_000))

    def both(act: str, *arguments: Any) -> None:
        one, other = (getattr(twin, act)(*arguments) for twin in twins)
        assert one == other, f"{act}{arguments}"
        shown, expected = (twin.shown() for twin in twins)
        assert shown == expected, f"after {act}{arguments}"

    for _ in range(60):
        known = list(twins[0].slots)
        latest = twins[0].trainer.policy_version
        act = chance.choices(
            ["reserve", "occupy", "discard", "take", "publish", "resume"], [5, 8, 2, 3, 3, 0.5]
        )[0]  # fmt: skip
        if act == "reserve":
            version = max(0, latest - chance.choice([0, 0, 0, 1, 2]))
            both("reserve", version, [next(letters) for _ in range(chance.randint(1, 4))])
        elif act in ("occupy", "discard") and known:
            both(act, chance.choice(known[-12:]))
        elif act in ("take", "publish"):
            both(act)
        elif act == "resume":
            both("resume", chance.randint(0, 2), chance.choice(["replay", "rewind"]))
    for twin in twins:
        twin.close()
