"""What the tests that run a job need."""

from __future__ import annotations

import shutil

import pytest

from processes import berth_binary


@pytest.fixture
def server_program() -> None:
    """Skips, visibly, where there is no server to run."""
    try:
        berth_binary()
    except FileNotFoundError as missing:
        pytest.skip(f"NOT RUN: {missing}")
    if shutil.which("redis-server") is None:
        pytest.skip("NOT RUN: redis-server is not installed")
