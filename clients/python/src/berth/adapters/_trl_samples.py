"""Groups of TRL's ``RolloutSample`` as files, so that what generates and what trains can be different processes.

The ledger keeps the reference, the reward and the length of each sample; tokens and log-probs are in the file.
"""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from .. import MemberResult

SUFFIX = ".npz"
#: The arrays of a sample, one number a token, with the type that TRL gives them.
ARRAYS: dict[str, Any] = {"input_ids": np.int64, "completion_mask": np.int64, "old_log_probs": np.float32}
#: Everything else that is written; what is left out is told by the ledger.
REST = ("prompt", "completion", "advantage", "metrics")


def write_samples(samples: Sequence[RolloutSample], directory: str | Path) -> str:
    """Writes samples to a new file in ``directory`` and returns its reference, a ``file://`` address, for ``payload=``.

    The file is whole and on the disk before it has its name: a reference in the ledger never leads to half a file. ``prompt``,
    ``completion`` and ``metrics`` must be JSON. ``model_version`` and ``group_id`` are not written: the trainer's are known only when it reads.
    """
    if not samples:
        raise ValueError("there are no samples to write")
    for sample in samples:
        lengths = {name: len(getattr(sample, name)) for name in ARRAYS}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"the arrays of a sample must be of one length, and not of {lengths}")
    arrays: dict[str, Any] = {
        name: np.concatenate([np.asarray(getattr(sample, name), dtype=kind) for sample in samples])
        for name, kind in ARRAYS.items()
    }
    rest = json.dumps([{name: getattr(sample, name) for name in REST} for sample in samples]).encode()
    # A name of its own each time: whoever adopts a group may write it while its first worker still does.
    path = Path(directory).resolve() / f"{uuid.uuid4().hex}{SUFFIX}"
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("xb") as file:
        np.savez(
            file,
            lengths=np.array([len(sample.input_ids) for sample in samples]),
            rest=np.frombuffer(rest, dtype=np.uint8),
            **arrays,
        )
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    return path.as_uri()


def read_samples(reference: str) -> list[RolloutSample]:
    """The samples behind a reference of :func:`write_samples`, in their order; ``model_version`` and ``group_id`` are 0."""
    with np.load(_path(reference), allow_pickle=False) as file:
        ends = np.cumsum(file["lengths"])[:-1]
        columns: dict[str, Any] = {name: np.split(file[name], ends) for name in ARRAYS}
        rest = json.loads(file["rest"].tobytes())
    samples = []
    for i, each in enumerate(rest):
        fields: dict[str, Any] = {**each, **{name: columns[name][i] for name in ARRAYS}}
        samples.append(RolloutSample(**fields, model_version=0, group_id=0))
    return samples


def delete_samples(reference: str) -> None:
    """Deletes the file behind a reference of :func:`write_samples`, for what :meth:`berth.Run.released` names; twice is no error."""
    _path(reference).unlink(missing_ok=True)


def _path(reference: str) -> Path:
    parts = urlsplit(reference)
    if parts.scheme != "file" or not parts.path.endswith(SUFFIX):
        raise ValueError(f"{reference} is no reference of write_samples: a file://….npz address was expected")
    return Path(unquote(parts.path))


def member_results(samples: Sequence[RolloutSample]) -> list[MemberResult]:
    """What the ledger is told of each sample of a group, for ``occupy(members=)``: its reward and how many tokens it trains.

    The reward is ``metrics["reward"]``, where TRL's own rollout worker puts it; one that is missing or NaN is none.
    """
    return [MemberResult(i, reward_of(sample), int(sample.completion_mask.sum())) for i, sample in enumerate(samples)]


def reward_of(sample: RolloutSample) -> float | None:
    """The sample's reward, if it has one."""
    reward = float(sample.metrics.get("reward", math.nan))
    return None if math.isnan(reward) else reward
