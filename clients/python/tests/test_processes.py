"""Processes that fork, and what goes from one to another."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Fake, Real
from servers import wait_until
from support import fill

import berth

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")


def in_a_fork(work: Callable[[], Any]) -> Any:
    """What the work answers in a forked process, or what it raises."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def answer() -> None:
        try:
            there.send(work())
        except BaseException as error:
            there.send(error)

    process = context.Process(target=answer)
    process.start()
    try:
        assert here.poll(60), "no answer"
        return here.recv()
    finally:
        process.join(60)
        here.close()
        there.close()


@needs_fork
def test_a_forked_process_does_not_read_its_parents_answers(real_server: str) -> None:
    run = Real(real_server).run()
    run.status()
    context = multiprocessing.get_context("fork")
    asked = [context.Process(target=lambda: [run.status() for _ in range(50)]) for _ in range(2)]
    for process in asked:
        process.start()
    assert {run.weights().version for _ in range(100)} == {0}
    for process in asked:
        process.join(60)
    assert [process.exitcode for process in asked] == [0, 0]


@needs_fork
def test_a_worker_stays_with_the_process_that_opened_it(real_server: str) -> None:
    run = Real(real_server).run()
    with run.worker("w") as worker:
        (slot,) = worker.reserve_up_to(1, 0)
        refused = in_a_fork(lambda: worker.reserve_up_to(1, 0))
        assert isinstance(refused, berth.NotOpen) and "forked" in str(refused)
        assert isinstance(in_a_fork(lambda: slot.occupy()), berth.NotOpen)
        assert in_a_fork(lambda: worker.__exit__(None, None, None)) is None
        assert run.trajectory(slot.id).state == "reserved"

        def reward() -> berth.Occupied:
            with run.worker("reward") as other:
                return other.slot(slot.id).occupy(reward=1.0)

        assert in_a_fork(reward).kept


@pytest.mark.parametrize(
    "error",
    [
        berth.Refused.of("POST /x", 409, {"code": "run_exists", "detail": "why", "fields": ["batch_size"]}),
        berth.Refused.of("POST /x", 418, {"code": "not_yet_invented"}),
        berth.SlotCancelled("an id", "surplus"),
        berth.Unreachable("POST /x: ConnectError"),
    ],
)
def test_exceptions_go_from_process_to_process(error: berth.BerthError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert (str(other), vars(other)) == (str(error), vars(error))


def test_batches_go_from_process_to_process_and_slots_do_not() -> None:
    run = Fake().run()
    fill(run, 2)
    with run.trainer() as trainer, run.worker("w") as worker:
        batch = next(iter(trainer))
        assert pickle.loads(pickle.dumps(batch)) == batch
        assert batch[1] == batch.trajectories[1]
        with pytest.raises(TypeError, match="pass its `id`"):
            pickle.dumps(next(worker.reserve(0)))


def test_a_token_is_shown_nowhere() -> None:
    client = berth.connect("http://127.0.0.1:1", token="secret")
    run = client.run("r")
    assert not any(
        "secret" in repr(vars(each)) + repr(each) for each in (client, run, client._sender, client._endpoint.retry)
    )
    client.close()


def test_a_worker_that_is_done_leaves_no_thread_and_no_connection(real_server: str) -> None:
    run = Real(real_server).run(lease_ms=1_000)
    with run.worker("w") as worker:
        heartbeat = worker._heartbeat
        assert heartbeat is not None
    wait_until(lambda: not heartbeat._thread.is_alive())
    assert heartbeat._sender.connections.is_closed


def test_a_client_that_was_closed_says_so() -> None:
    with Fake().connect() as client:
        run = client.run("r", batch_size=1, max_staleness=1)
    client.close()
    with pytest.raises(berth.NotOpen, match="closed"):
        run.status()


def test_a_worker_is_opened_once_at_a_time() -> None:
    worker = Fake().run().worker("w")
    with worker:
        with pytest.raises(berth.BerthError, match="open already"):
            worker.__enter__()
        assert worker.reserve_up_to(1, 0) != []
    with worker:
        assert worker._sender.retry.patience_s == worker.run._sender.retry.patience_s, "as patient as before"


def test_a_name_that_no_worker_may_have_is_refused_by_what_it_is(real_server: str) -> None:
    run = Real(real_server).run()
    worker = run.worker("a/b")
    for _ in range(2):
        with pytest.raises(berth.InvalidRequest):
            worker.__enter__()
    with pytest.raises(berth.UnknownTrajectory):
        run.trajectory("a/b")


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "berth.internal", "ftp://berth.internal"])
def test_an_address_that_cannot_be_called_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="begins with http"):
        berth.connect(url)


def test_a_token_that_cannot_be_sent_is_refused_at_once_and_not_shown() -> None:
    with pytest.raises(ValueError, match="line break") as refusal:
        berth.connect("http://127.0.0.1:8080", token="secret\n")
    assert "secret" not in str(refusal.value)


def test_no_proxy_is_asked_for_this_machine(real_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert Real(real_server).run().status().policy_version == 0
