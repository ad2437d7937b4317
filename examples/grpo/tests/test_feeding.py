"""The problems that a job feeds."""

from __future__ import annotations

from itertools import islice

import berth
import pytest
from berth.fake import FakeServer

from feeding import Feeder, prompts
from task import Problem


@pytest.fixture
def run() -> berth.Run:
    return FakeServer().connect().run("r", batch_size=2, max_staleness=1, prompt_queue=True)


def queued(run: berth.Run) -> int:
    return run.prompts().counts["queued"]


def test_a_seed_has_its_problems_and_each_of_them_a_name_of_its_own() -> None:
    of_0 = list(islice(prompts(0), 2_000))
    assert of_0 == list(islice(prompts(0), 2_000))
    assert of_0[:10] != list(islice(prompts(1), 10))
    assert len({prompt.id for prompt in of_0}) == 2_000
    problem = Problem(**of_0[7].data)
    assert of_0[7].id == f"7: {problem.left}+{problem.right}"


def test_the_queue_is_filled_up_when_it_holds_less_than_its_stock(run: berth.Run) -> None:
    feeder = Feeder(run, seed=0, stock=3)
    feeder.fill()
    assert queued(run) == 6
    with run.worker("w") as worker:
        handed_out = [slot.prompt for slot in worker.reserve_up_to(4, 0)]
        assert handed_out == [prompt.id for prompt in islice(prompts(0), 4)]
        feeder.fill()
        assert queued(run) == 6
        feeder.fill()
        assert queued(run) == 6
    assert run.prompts().fed == 10


def test_a_run_that_is_being_finished_is_not_fed(run: berth.Run) -> None:
    run.drain(queue="keep")
    Feeder(run, seed=0, stock=3).fill()
    assert queued(run) == 0
