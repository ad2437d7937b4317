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

    def feed(self, names: list[str]) -> object:
        try:
            return self.run.feed(names, offset=self.run.prompts().fed)
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
        entries = [entry.prompt for entry in piece]
        return piece.version, piece.offset, piece.complete, piece.final, piece.replayed, entries

    def discard(self, name: str, requeue: bool) -> object:
        names = {slot.id: key for key, slot in self.slots.items()}
        try:
            answer = self.run.discard(self.slots[name].id, "filtered", requeue=requeue)
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
        self.streamed_of = -1
        return self.trainer.epoch, self.trainer.trainer_version, self.trainer.policy_version, self.trainer.lineage

    def shown(self) -> object:
        status = self.run.status()
        numbers = (status.policy_version, status.next_buffer, status.trainer_version, status.lineage, status.finished)
        return (
            numbers,
            status.prompts,
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
            self.both("feed", [next(self.letters) for _ in range(chance.randint(1, 6))])
        elif act == "stream":
            least = chance.randint(1, 2)
            self.both("stream", least, chance.choice([None, least]))
        else:
            self.both(act)

    def close(self) -> None:
        for twin in self.twins:
            twin.close()


@pytest.mark.parametrize("feature", ["single", "groups", "prompts", "streaming"])
@pytest.mark.parametrize("seed", range(4))
def test_the_fake_places_entries_as_the_server_does(real_server: str, seed: int, feature: str) -> None:
    chance = random.Random(f"{feature} {seed}")
    batch_size, eta = chance.randint(1, 4), chance.randint(0, 3)
    config: dict[str, Any] = {"batch_size": batch_size, "max_staleness": eta}
    weights: dict[str, float] = {"reserve": 5, "occupy": 8, "discard": 2, "take": 3, "publish": 3, "resume": 0.5}
    if chance.random() < 0.5:
        config["slots_per_buffer"] = batch_size + chance.randint(1, 3)
    if chance.random() < 0.5:
        config["max_concurrency"] = chance.randint(4, 12)
    if feature == "groups":
        Real(real_server).needs("groups", "adoption")
        config |= {"group_size": 2, "group_candidates": 3, "drop_zero_variance": chance.random() < 0.5}
        config["auto_occupy"] = chance.random() < 0.7
        weights |= {"member": 16, "occupy": 2}
    elif feature == "prompts":
        Real(real_server).needs("prompts", "requeue", "drain")
        config |= {"prompt_queue": True, "max_attempts": 2}
        weights |= {"feed": 3, "drain": 0.3, "undrain": 0.5}
    elif feature == "streaming":
        Real(real_server).needs("streaming", "drain")
        weights |= {"stream": 4, "take": 1, "drain": 0.3, "undrain": 0.5}
    play = Play(chance, config, real_server)
    for act in chance.choices(list(weights), list(weights.values()), k=60):
        play.act(act)
    play.close()
