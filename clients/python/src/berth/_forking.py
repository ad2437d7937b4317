"""What a forked process must not share with its parent: connections, on which each would read the other's answers, and locks that a
thread of the parent may have held."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewed(Protocol):
    """Something that begins anew in a forked process."""

    def _after_fork(self) -> None: ...


_renewed: weakref.WeakSet[Renewed] = weakref.WeakSet()


def renew_after_fork(owner: Renewed) -> None:
    """Has its ``_after_fork`` called in every process that is forked from this one, as long as it lives."""
    _renewed.add(owner)


def _renew_all() -> None:
    for owner in list(_renewed):
        owner._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
