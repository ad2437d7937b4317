"""The short form of the whole job: one seed, half as long, with every kill in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from job import run_job, start_from

VERSIONS = 100


@pytest.mark.usefixtures("server_program")
def test_the_policy_learns_although_everything_is_killed(tmp_path: Path) -> None:
    start = start_from(0, tmp_path / "start.npz")
    result = run_job(tmp_path / "job", start, kills=True, stream=True, versions=VERSIONS)

    before, after = result.curve[0][1], result.curve[-1][1]
    assert result.curve[-1][0] == VERSIONS
    # In the first 40 versions, in which little is learned, it goes up and down by 0.03 or less.
    assert after - before > 0.05, result.curve
    assert [killed.split(" at ")[0] for killed in result.killed] == [
        "rollout-0",
        "trainer",
        "rollout-1",
        "server",
        "rollout-2",
        "trainer",
    ]
    # The first trainer died some versions behind its checkpoint: the steps since then were made again, from the same batches.
    assert result.replayed > 0
    assert result.replayed_alike == result.replayed
