"""The contract is enough: a client that a standard generator makes of it takes a run from its creation to its end."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from conftest import NAMES


@pytest.fixture(scope="module")
def generated(real_server: str, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The package that openapi-python-client makes of the server's own document."""
    generator = Path(sys.executable).with_name("openapi-python-client")
    if not generator.exists():
        pytest.skip("NOT RUN: openapi-python-client is not installed")
    directory = tmp_path_factory.mktemp("generated")
    (directory / "openapi.json").write_text(json.dumps(httpx.get(f"{real_server}/openapi.json").json()))
    # What it formats its code with need not be there.
    (directory / "config.yaml").write_text("post_hooks: []\n")
    where = ["--path", "openapi.json", "--output-path", "berth_generated", "--config", "config.yaml"]
    command = [str(generator), "generate", "--meta", "none", *where]
    made = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    sys.path.insert(0, str(directory))
    try:
        return importlib.import_module("berth_generated")
    finally:
        sys.path.remove(str(directory))


def test_a_generated_client_does_a_whole_job(real_server: str, generated: ModuleType) -> None:
    name = f"generated-{next(NAMES)}"
    client = generated.Client(base_url=real_server)

    def call(path: str, *names: object, **parameters: Any) -> Any:
        function = importlib.import_module(f"berth_generated.api.{path}")
        return function.sync(*names, client=client, **parameters)

    def model(kind: str, **fields: Any) -> Any:
        return getattr(importlib.import_module("berth_generated.models"), kind).from_dict(fields)

    created = call("runs.put_run", name, body=model("NewRun", batch_size=2, max_staleness=1, prompt_queue=True))
    assert created.config.max_attempts == 3
    fed = call("rollout.feed", name, body=model("NewPage", offset=0, prompts=[{"id": f"q-{n}"} for n in range(2)]))
    assert fed.fed == 2
    opened = call("training.open_trainer_session", name, body=model("NewTrainerSession", trainer="t0", session="s"))
    who = {"worker": "w", "session": "s"}
    granted = call("rollout.reserve", name, body=model("NewReservation", **who, version=0, count=2)).granted
    assert [slot.prompt for slot in granted] == ["q-0", "q-1"]
    for slot in granted:
        placed = call("rollout.occupy", name, slot.id, body=model("NewFinish", **who, reward=1.0, tokens=9))
        assert (placed.state, placed.buffer) == ("occupied", 0)
    beat = call("rollout.heartbeat", name, "w", body=model("NewHeartbeat", session="s", version=0))
    assert (beat.policy_version, beat.finished) == (0, False)
    answer = call("training.next_batch", name, body=model("NextBatchRequest", epoch=opened.epoch))
    assert [entry.reward for entry in answer.batch.trajectories] == [1.0, 1.0]
    refused = call("training.publish", name, body=model("NewVersion", version=7, epoch=opened.epoch))
    assert refused.code == "publish_out_of_order"
    published = call("training.publish", name, body=model("NewVersion", version=1, epoch=opened.epoch))
    assert published.policy_version == 1
    assert call("training.drain", name, body=model("DrainRequest", drain=True)).finished
    assert call("looking.distribution", name).trained.entries == 2
    call("runs.delete_run", name)
    assert call("runs.get_run", name).code == "unknown_run"
