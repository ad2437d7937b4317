"""What a user writes, for mypy --strict to read as theirs."""

from __future__ import annotations

import berth
import berth.aio
from berth.fake import FakeServer


class Engine:
    version = 0

    def generate(self, data: object) -> tuple[float, int]:
        return 1.0, len(str(data))

    def load(self, weights: berth.Weights) -> None:
        self.version = weights.version


def rollout(run: berth.Run, engine: Engine) -> int:
    done = 0
    with run.worker("rollout-3") as worker:
        for slot in worker.reserve(lambda: engine.version, refresh=engine.load):
            reward, tokens = engine.generate(slot.data)
            done += slot.occupy(reward=reward, tokens=tokens).kept
        if worker.lags:
            worker.hold(berth.Weights(version=3, lineage=0))
        newer = berth.Weights(version=4, lineage=1)
        worker.slot("an id").occupy(members=[berth.MemberResult(index=0, version=newer, segments=[(newer, 12), (5, 20)])])
    return done


def watch(run: berth.Run) -> list[str]:
    return [event.type for event in run.follow(until_finished=True)]


def train(run: berth.Run, step: int | None) -> float:
    total = 0.0
    with run.trainer(resume_from=step) as trainer:
        for batch in trainer:
            total += sum(entry.reward or 0.0 for entry in batch)
            trainer.publish(weights=f"file:///{batch.version + 1}")
        for piece in trainer.stream(min_entries=4):
            total += len(piece)
    return total


async def rollout_async(client: berth.aio.Client) -> None:
    run = await client.run("grpo-7b", batch_size=16, max_staleness=1)

    async def generate(member: berth.aio.Member) -> None:
        await member.complete(reward=1.0)

    async with run.worker("rollout-3") as worker:
        await worker.serve_members(generate, lambda: berth.Weights(version=3, lineage=0))
        async for slot in worker.reserve(3):
            try:
                await slot.occupy(reward=1.0)
            except berth.Fenced as fenced:
                print(fenced.detail)


def clients() -> tuple[berth.Client, berth.aio.Client]:
    return berth.connect("http://127.0.0.1:8080", token="…"), FakeServer().connect_async()
