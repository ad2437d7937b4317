"""What travels or stays as files: payloads and weights in shared memory, checkpoints on disk. A reader sees a whole file or none."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from grpo import State
from model import Params
from sampling import Samples
from settings import Settings

Arrays = dict[str, NDArray[np.generic]]


class Files:
    """The files of one job."""

    def __init__(self, settings: Settings) -> None:
        self.payloads = Path(settings.shared, "payloads")
        self.weights = Path(settings.shared, "weights")
        self.checkpoints = Path(settings.directory, "checkpoints")
        for directory in (self.payloads, self.weights, self.checkpoints):
            directory.mkdir(parents=True, exist_ok=True)

    # Payloads: the samples of one group, named by the reservation's id.

    def payload(self, id: str) -> str:
        """The reference of the payload that this reservation has, if it was written."""
        return (self.payloads / f"{id}.npz").as_uri()

    def save_payload(self, id: str, samples: Samples) -> str:
        """Writes a group's samples. Returns the reference."""
        reference = self.payload(id)
        _write(path_of(reference), dataclasses.asdict(samples))
        return reference

    def load_payload(self, reference: str) -> Samples:
        """Reads a group's samples."""
        return Samples(**_read(path_of(reference)))  # type: ignore[arg-type]

    # Weights: what rollout processes load.

    def weights_path(self, version: int) -> Path:
        """Where the weights of this version are."""
        return self.weights / f"{version:05}.npz"

    def save_weights(self, state: State) -> str:
        """Writes the weights. Returns the reference."""
        path = self.weights_path(state.version)
        _write(path, _arrays(state.params))
        return path.as_uri()

    def load_weights(self, reference: str) -> Params:
        """Reads the weights."""
        return _params(_read(path_of(reference)))

    # Checkpoints: what a trainer goes on from.

    def save_checkpoint(self, state: State) -> None:
        """Writes a checkpoint that survives a crash of the machine."""
        save_checkpoint(self._checkpoint(state.version), state)

    def checkpoint_versions(self) -> list[int]:
        """The versions that there are checkpoints of, in order."""
        return sorted(int(path.stem) for path in self.checkpoints.glob("*.npz"))

    def load_checkpoint(self, version: int) -> State:
        """Reads a checkpoint."""
        arrays = _read(self._checkpoint(version))

        def part(prefix: str) -> Params:
            return _params(
                {name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith(prefix)}
            )

        return State(version, part("params/"), part("mean/"), part("square/"))

    def _checkpoint(self, version: int) -> Path:
        return self.checkpoints / f"{version:05}.npz"


def save_checkpoint(path: Path, state: State) -> None:
    """Writes a checkpoint here, synced."""
    parts = {"params": state.params, "mean": state.mean, "square": state.square}
    arrays = {f"{part}/{name}": each for part, values in parts.items() for name, each in _arrays(values).items()}
    _write(path, arrays, durable=True)


def path_of(reference: str) -> Path:
    """The file that a `file://` reference names."""
    scheme, path = reference.split("://", 1)
    if scheme != "file":
        raise ValueError(f"{reference} is no file")
    return Path(path)


def delete(reference: str) -> None:
    """Deletes the file, and what a writer that was killed left of it, if they are there."""
    path = path_of(reference)
    path.unlink(missing_ok=True)
    _unfinished(path).unlink(missing_ok=True)


def _unfinished(path: Path) -> Path:
    return path.with_suffix(".part")


def _write(path: Path, arrays: Arrays, *, durable: bool = False) -> None:
    with open(_unfinished(path), "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(_unfinished(path), path)


def _read(path: Path) -> Arrays:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def _arrays(params: Params) -> Arrays:
    return {name: np.asarray(value) for name, value in params.items()}


def _params(arrays: Arrays) -> Params:
    return {name: jnp.asarray(value) for name, value in arrays.items()}
