"""Trajectories in files, one for each entry of a run: what the ledger's payload references mean. Not for untrusted places: pickle."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class TrajectoryFiles:
    """The files of one run, in a folder that is its alone; they are named by the entries' ids."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def write(self, id: str, trajectory: object) -> str:
        """Returns the payload reference once the file is on disk: before the ledger hears of it, since a trainer that is given an
        entry without its file stops."""
        part = self._path(id).with_suffix(".part")
        with part.open("wb") as file:
            pickle.dump(trajectory, file, protocol=pickle.HIGHEST_PROTOCOL)
            file.flush()
            os.fsync(file.fileno())
        return part.replace(self._path(id)).as_uri()

    def read(self, id: str) -> Any:
        """The trajectory of an entry, as it was written. Raises :class:`FileNotFoundError`."""
        return pickle.loads(self._path(id).read_bytes())

    def remove(self, id: str) -> None:
        """Removes the file of an entry that nobody will read."""
        self._path(id).unlink()

    def keep(self, ids: Iterable[str]) -> None:
        """Removes the files of all other entries."""
        kept = {self._path(id) for id in ids}
        for path in self._folder.iterdir():
            if path not in kept:
                path.unlink()

    def _path(self, id: str) -> Path:
        return self._folder / f"{id}.trajectory"
