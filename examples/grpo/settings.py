"""What one job is told: the same for each of its processes, as a JSON file that all of them read."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import berth


@dataclass(frozen=True)
class Settings:
    """One job."""

    run: str
    """The run's name in Berth."""

    url: str
    """The server."""

    directory: str
    """Where what must survive is kept: checkpoints, records and logs."""

    shared: str
    """Where payloads and weights travel, in memory: a directory of `/dev/shm`."""

    seed: int = 0
    max_staleness: int = 1
    stream: bool = False
    """Whether the trainer takes each batch in pieces, as its groups finish."""

    versions: int = 200
    """How many versions are trained."""

    batch_size: int = 16
    """Groups in a batch."""

    group_size: int = 8
    """Answers in a group."""

    piece: int = 4
    """Groups whose gradient is computed in one go, and that a piece of a streamed batch has."""

    checkpoint_every: int = 10
    """Versions from one checkpoint to the next."""

    rollouts: int = 3
    """Rollout processes."""

    def save(self, path: Path) -> None:
        """Writes the file."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2))

    @staticmethod
    def load(path: str) -> Settings:
        """Reads the file."""
        return Settings(**json.loads(Path(path).read_text()))

    def connect(self, *, patience_s: float = 600) -> berth.Run:
        """The run; it is created if it is not there yet. A server that is away is waited for as long as `patience_s`."""
        return berth.connect(self.url, retry=berth.Retry(patience_s=patience_s)).run(
            self.run,
            batch_size=self.batch_size,
            max_staleness=self.max_staleness,
            group_size=self.group_size,
            drop_zero_variance=True,
            prompt_queue=True,
        )
