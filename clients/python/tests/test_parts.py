"""The parts that know no I/O: retries, errors, decoding, reasons, versions and lineages, pages of prompts."""

from __future__ import annotations

import gc
import inspect
import re
from typing import Any

import httpx
import pytest
from servers import REPOSITORY

import berth
from berth import errors
from berth._call import Call, Memory, answer_of
from berth._decode import decode
from berth._feeding import pages
from berth._handing_in import finish_json
from berth._holdings import HeldSlot, Holdings
from berth._reasons import LEDGER_REASONS, note_of, reason_of
from berth._weights import HeldWeights

CONFIG = berth.RunConfig(batch_size=1, max_staleness=1, slots_per_buffer=1)


def refusal(status: int, code: str, **more: object) -> berth.Refused:
    return berth.Refused.of("POST /x", status, {"code": code, "detail": "why", **more})


def test_each_code_of_the_contract_has_its_class() -> None:
    codes = set(re.findall(r"\| `(\w+)` \|", (REPOSITORY / "docs/python.md").read_text()))
    classes = {each.code for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, berth.Refused)}
    assert classes - {""} <= codes
    assert type(refusal(409, "fenced")) is berth.Fenced
    unknown = refusal(409, "not_yet_invented")
    assert type(unknown) is berth.Refused and unknown.code == "not_yet_invented"
    assert str(refusal(409, "fenced")) == "POST /x: 409 fenced: why"
    assert isinstance(refusal(409, "trajectory_discarded", reason="surplus"), berth.TrajectoryDiscarded)


@pytest.mark.parametrize(
    ("error", "worker", "trainer"),
    [
        (httpx.ConnectError("no"), True, True),
        (httpx.ReadTimeout("no"), True, True),
        (httpx.UnsupportedProtocol("no"), False, False),
        (refusal(503, "database_unavailable"), True, True),
        (refusal(503, "newer_layout"), False, False),
        (refusal(429, "too_many_waiting"), True, True),
        (refusal(502, ""), True, True),
        (refusal(409, "ledger_behind"), True, False),
        (refusal(409, "fenced"), False, False),
        (refusal(400, "invalid_request"), False, False),
    ],
)
def test_what_passes_is_retried_and_nothing_else(error: Exception, worker: bool, trainer: bool) -> None:
    retry = berth.Retry()
    assert (retry.pause_s(1, 0.0, error, sits_out_recovery=True) is not None) is worker
    assert (retry.pause_s(1, 0.0, error, sits_out_recovery=False) is not None) is trainer


def test_pauses_grow_up_to_a_limit_and_end_with_the_patience() -> None:
    retry = berth.Retry(patience_s=10, first_pause_s=0.1, longest_pause_s=1.0)
    lost = httpx.ReadError("lost")
    for failures, least, most in [(1, 0.05, 0.1), (2, 0.1, 0.2), (9, 0.5, 1.0)]:
        pause = retry.pause_s(failures, 0, lost, sits_out_recovery=False)
        assert pause is not None and least <= pause <= most
    assert retry.pause_s(2, 11, lost, sits_out_recovery=False) is None
    assert retry.pause_s(1, 11, lost, sits_out_recovery=False) is not None, "a long wait is repeated once"
    busy = refusal(503, "database_unavailable", retry_after_s=3)
    assert retry.pause_s(1, 0, busy, sits_out_recovery=False) == 3


def test_a_server_newer_than_the_client_is_understood() -> None:
    grant = decode(berth.Grant, {"id": "a", "version": 1, "deadline": 2, "colour": "red"})
    assert (grant.id, grant.attempt, grant.members_done) == ("a", 1, [])
    moved = decode(berth.Discarded, {"discarded_from": "occupied", "promoted": [{"id": "b", "from": 1, "to": 0}]})
    assert moved.promoted == [berth.Promoted(id="b", from_=1, to=0)]
    with pytest.raises(berth.MalformedAnswer):
        decode(berth.Grant, {"id": "a"})
    with pytest.raises(berth.MalformedAnswer):
        decode(berth.Grant, "a")


def test_what_is_no_json_is_no_answer() -> None:
    call: Call[object] = Call("GET", "/v1/runs/x", lambda document: document)
    with pytest.raises(berth.MalformedAnswer):
        answer_of(call, httpx.Response(200, text="<html>"), None)
    with pytest.raises(berth.Refused) as refused:
        answer_of(call, httpx.Response(502, text="<html>bad gateway"), None)
    assert refused.value.status == 502 and "bad gateway" in refused.value.detail


def test_sequence_number_and_lineage_never_go_back() -> None:
    memory = Memory()
    call: Call[object] = Call("GET", "/", lambda document: document)
    for seq, lineage in [("7", 1), ("5", 0)]:
        answer_of(call, httpx.Response(200, json={"lineage": lineage}, headers={"berth-seq": seq}), memory)
    assert (memory.seq, memory.lineage) == (7, 1)


def test_an_exception_is_a_reason() -> None:
    class TimedOut(Exception):
        pass

    class Worded(Exception):
        berth_reason = "bad answer"

    assert reason_of(ValueError("x")) == "value_error"
    assert reason_of(TimedOut()) == "worker_timed_out", "the ledger's own words are not a client's"
    assert reason_of(Worded()) == "bad_answer"
    assert all(re.fullmatch("[a-z _]{1,64}", reason_of(each("x"))) for each in (KeyboardInterrupt, UnicodeError))
    assert "timed_out" in LEDGER_REASONS
    assert len(note_of(ValueError("ä" * 5000)).encode()) <= 2000


def test_a_number_keeps_the_lineage_under_which_it_was_first_seen() -> None:
    memory = Memory()
    held = HeldWeights(memory)
    assert held.observe(7) == berth.Weights(version=7, lineage=0)
    memory.note(None, 1)
    assert held.observe(7).lineage == 0, "the weights are the same as before the rewind"
    assert held.observe(lambda: 6).lineage == 1
    held.fetched(berth.Weights(version=5, lineage=0))
    assert held.observe(5).lineage == 0, "fetched before the rewind, loaded after it"
    assert held.observe(berth.Weights(version=7, lineage=1)).lineage == 1
    assert held.name(5).lineage == 0
    assert held.held == berth.Weights(version=7, lineage=1), "to speak of older weights is not to hold them"


def test_prompts_are_cut_into_pages() -> None:
    found = list(pages((f"q-{n}" for n in range(1500)), 10))
    assert [(start, len(page)) for start, page in found] == [(10, 1024), (1034, 476)]
    heavy = [{"id": str(n), "data": "x" * 16_000} for n in range(300)]
    assert [start for start, _ in pages(heavy, 0)] == [0, 130, 260]
    assert list(pages([], 0)) == []


def test_holdings_forget_what_nobody_holds_and_tell_what_is_cancelled() -> None:
    holdings = Holdings("w", "s", CONFIG, Memory(), 0)
    kept = HeldSlot(berth.Grant(id="kept", version=0, deadline=1), holdings, None)
    holdings.add(kept)
    holdings.add(HeldSlot(berth.Grant(id="dropped", version=0, deadline=1), holdings, None))
    gc.collect()
    beat = holdings.next_beat()
    assert beat.holding == ["kept"]
    told: list[str] = []
    kept.on_cancel(told.append)
    cancelled = [berth.Cancelled(id="kept", reason="surplus"), berth.Cancelled(id="dropped", reason="abandoned")]
    answer = berth.Heartbeat(lease_expires_in_ms=1, policy_version=3, lineage=0, cancelled=cancelled)
    holdings.told(beat, answer)
    holdings.told(beat, answer)
    assert told == ["surplus"] and kept.cancelled
    kept.on_cancel(told.append)
    assert told == ["surplus", "surplus"], "who asks late is told at once"
    assert holdings.next_beat().acknowledged == ["kept", "dropped"]
    holdings.told(holdings.next_beat(), answer)
    assert holdings.next_beat().acknowledged == []
    holdings.reserve_is_unsure(1)
    assert holdings.next_beat().holding is None, "there may be grants that are not known here"


def test_scalars_of_numerical_libraries_are_numbers() -> None:
    class Scalar:
        def __float__(self) -> float:
            return 0.5

        def __int__(self) -> int:
            return 7

    scalar: Any = Scalar()
    assert finish_json(scalar, scalar, None, None) == {"reward": 0.5, "tokens": 7}
    assert finish_json(None, None, "file:///x", {}) == {"payload": "file:///x", "meta": {}}
