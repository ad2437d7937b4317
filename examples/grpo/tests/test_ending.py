"""How a job ends that is told to: with all its processes, and with what it had in shared memory."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from files import save_checkpoint
from grpo import fresh
from model import init
from processes import HERE

LIMIT_S = 60


def alive(directory: Path) -> dict[int, str]:
    """The processes of the job in this directory, each with its command: they name it there, or work in it."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text().replace("\0", " ")
            if f"{directory}/" in command or directory in (process / "cwd").readlink().parents:
                found[int(process.name)] = command
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue  # gone meanwhile, or somebody else's
    return found


def all_seven(directory: Path) -> dict[int, str]:
    """The processes of the job and the server's own Redis. One that has only just begun does not show its command yet."""
    until = time.monotonic() + LIMIT_S
    while len(found := alive(directory)) != 7:
        assert time.monotonic() < until, found
        time.sleep(0.01)
    return found


@pytest.mark.usefixtures("server_program")
@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_job_that_is_told_to_end_leaves_no_process(told: signal.Signals, tmp_path: Path) -> None:
    directory = tmp_path / "job"
    save_checkpoint(tmp_path / "start-0.npz", fresh(init(0)))
    command = [sys.executable, str(HERE / "job.py"), "--directory", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        assert "started: server, cleaner, rollout-0, rollout-1, rollout-2, trainer" in job.stdout.readline()
        started = all_seven(directory)
        ends = [os.pidfd_open(pid) for pid in started]
        job.send_signal(told)
        status = job.wait(LIMIT_S)

    shared = Path(json.loads((directory / "settings.json").read_text())["shared"])
    if told == signal.SIGKILL:
        # Nobody was there to wait for them, nor to clear up.
        assert status == -told
        for end in ends:
            assert select.select([end], [], [], LIMIT_S)[0], alive(directory)
        shutil.rmtree(shared)
    else:
        assert status == 128 + told
        assert not shared.exists()
    assert alive(directory) == {}
    for end in ends:
        os.close(end)
