"""The package as its users meet it: the README's lines, the types, the example, the documentation."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import NAMES, Ledger
from servers import REPOSITORY
from support import thread

import berth
import berth.aio
from berth.fake import FakeServer

PACKAGE = Path(__file__).resolve().parents[1]


def readme_lines() -> tuple[str, str, str]:
    """The README's Python: what all processes say, the rollout process's part, the trainer's."""
    code = re.search(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert code is not None
    head, _, rest = code[1].partition("# rollout process\n")
    rollout, _, trainer = rest.partition("# trainer process\n")
    return head, rollout, trainer


def test_the_readmes_lines_run_as_written(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    client = ledger.connect()
    name = f"grpo-7b-{next(NAMES)}"
    original = client.run
    monkeypatch.setattr(client, "run", lambda _, **config: original(name, **config))
    monkeypatch.setattr(berth, "connect", lambda url: client)
    head, rollout, trainer = readme_lines()
    losses: list[int] = []
    saved: list[int] = []

    class Engine:
        version = 0

        def generate(self, data: Any) -> SimpleNamespace:
            return SimpleNamespace(reward=1.0, n=data["n"])

    def update(batch: berth.Batch) -> int:
        losses.append(len(batch))
        return losses[-1]

    def save(step: int) -> str:
        saved.append(step)
        return f"file:///{len(saved)}"

    names: dict[str, Any] = {"engine": Engine(), "update": update, "save": save, "step": 0}
    exec(head, names)
    run = names["run"]
    run.feed(berth.Prompt(id=f"q-{n}", data={"n": n}) for n in range(40))
    run.drain()

    def refreshed() -> None:
        # The engine's weights follow the published ones.
        while not run.status().finished:
            names["engine"].version = run.weights(after=names["engine"].version, wait_ms=5_000).version

    with thread(refreshed), thread(lambda: exec(trainer, dict(names))):
        exec(rollout, dict(names))
    assert losses == [16, 16, 8]
    assert run.prompts().counts["trained"] == 40


def test_a_users_script_is_typed(tmp_path: Path) -> None:
    script = PACKAGE / "tests/user_script.py"
    # From elsewhere, without the configuration of this package; what mypy knows of it already it need not find again.
    cache = str(PACKAGE / ".mypy_cache")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, str(script)]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_the_example_with_many_requests_in_flight(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGE / "examples"))
    import many_in_flight

    job = many_in_flight.job(ledger.connect_async(), f"example-{next(NAMES)}", prompts=160, batch_size=32)
    status = asyncio.run(asyncio.wait_for(job, 120))
    assert status.finished and status.totals.trained == 160
    assert status.prompts is not None and status.prompts["trained"] == 160


@pytest.mark.parametrize(
    "of", [berth.Client, berth.Run, berth.Worker, berth.Slot, berth.Member, berth.Trainer, berth.aio.Worker]
)
def test_every_call_is_documented(of: type) -> None:
    page = (REPOSITORY / "docs/python.md").read_text()
    public = [name for name, _ in inspect.getmembers(of) if not name.startswith("_")]
    assert [name for name in public if f"`{name}" not in page and f".{name}" not in page] == []
    assert [name for name in public if not inspect.getdoc(getattr(of, name))] == []


@pytest.mark.parametrize("name", ["Client", "Run", "Worker", "Slot", "Member", "Trainer"])
def test_both_forms_have_the_same_calls(name: str) -> None:
    def parameters(of: type) -> dict[str, list[str]]:
        calls = inspect.getmembers(of, inspect.isfunction)
        return {name: list(inspect.signature(call).parameters) for name, call in calls if not name.startswith("_")}

    blocking, asynchronous = parameters(getattr(berth, name)), parameters(getattr(berth.aio, name))
    assert {key: asynchronous.get(key) for key in blocking} == blocking


def test_the_documentations_examples_run(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    blocking, asynchronous = fake.connect(), fake.connect_async()
    monkeypatch.setattr(berth, "connect", lambda url: blocking)
    monkeypatch.setattr(berth.aio, "connect", lambda url: asynchronous)
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/python.md").read_text(), re.DOTALL)
    for block in blocks:
        exec(block, names)
    assert len(blocks) == 7


def test_the_documentations_way_to_delete_files_deletes_them(fake: FakeServer, tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    page = (REPOSITORY / "docs/python.md").read_text()
    exec(next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "delete_files" in block), names)
    run = fake.connect().run("files", batch_size=2, max_staleness=1)
    written = tmp_path / "sample"
    written.write_bytes(b"")
    with run.worker("w") as worker:
        (slot,) = worker.reserve_up_to(1, 0)
        slot.occupy(payload=written.as_uri())
    run.discard(slot.id, "boring")
    run.drain()
    names["delete_files"](run, until_finished=True)
    assert not written.exists()
