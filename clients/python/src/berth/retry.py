"""When a call is repeated. Every call of the contract may be: it is recognised by its request id, session token or offset."""

from __future__ import annotations

import random
from dataclasses import dataclass

import httpx

from .errors import LedgerBehind, NewerLayout, Refused

#: What a proxy in front of the server says while the server is away, and what the server says while its database is.
PASSING_STATUSES = frozenset({429, 502, 503, 504})


@dataclass(frozen=True)
class Retry:
    """Back-off between the attempts of one call; all times in seconds.

    The pause doubles from ``first_pause_s`` to ``longest_pause_s``, with jitter, so that a thousand workers do not come back at
    once. A call is given up when it has been tried for ``patience_s``; the time that the server holds a waiting call counts, but
    at least one repetition is made.
    """

    patience_s: float = 600.0
    first_pause_s: float = 0.05
    longest_pause_s: float = 5.0

    def pause_s(self, failures: int, spent_s: float, error: Exception, *, sits_out_recovery: bool) -> float | None:
        """How long to wait after so many failures of a call, or None when ``error`` is its end."""
        if not is_passing(error, sits_out_recovery=sits_out_recovery):
            return None
        if spent_s >= self.patience_s and failures > 1:
            return None
        ceiling = min(self.longest_pause_s, self.first_pause_s * 2.0 ** min(failures - 1, 30))
        pause = random.uniform(ceiling / 2, ceiling)
        asked = error.problem.get("retry_after_s") if isinstance(error, Refused) else None
        return max(pause, float(asked)) if asked is not None else pause


def is_passing(error: Exception, *, sits_out_recovery: bool) -> bool:
    """Whether the same call may succeed a little later."""
    if isinstance(error, httpx.TransportError):
        return not isinstance(error, httpx.UnsupportedProtocol)
    if isinstance(error, LedgerBehind):
        return sits_out_recovery
    if isinstance(error, NewerLayout):
        return False
    return isinstance(error, Refused) and error.status in PASSING_STATUSES
