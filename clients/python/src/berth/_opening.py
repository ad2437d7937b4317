"""What opening a trainer session says."""

from __future__ import annotations

from dataclasses import dataclass

from .models import ResumeMode


@dataclass(frozen=True)
class Opening:
    """The trainer's name and token, and the checkpoint that it goes on from; or the epoch of a session that it joins."""

    name: str
    session: str | None = None
    resume_from: int | None = None
    mode: ResumeMode = "replay"
    force: bool = False
    epoch: int | None = None
    trainer_version: int = 0
