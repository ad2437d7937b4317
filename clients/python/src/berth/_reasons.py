"""Why entries are discarded: the ledger's words, and the word for an exception that ends a generation."""

from __future__ import annotations

import re

#: The ledger's own words, which no client may give.
LEDGER_REASONS = frozenset(
    "lease_expired worker_restarted abandoned surplus rewound too_stale stuck_timeout timed_out group_failed group_filled "
    "zero_variance drained".split()
)
#: Discarded for these, an entry may still be finished, as long as a slot could be legal for it (*Late occupy*).
LATE_REASONS = frozenset({"lease_expired", "abandoned", "stuck_timeout", "timed_out"})
MOST_BYTES_OF_NOTE = 2000


def reason_of(error: BaseException) -> str:
    """The class of the exception in words: ``ValueError`` is ``value_error``.

    An exception may bring its own word as an attribute ``berth_reason``. A run counts 32 different ones, and the rest as one.
    """
    word = getattr(error, "berth_reason", None) or type(error).__name__
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(word)).lower()
    words = re.sub(r"[^a-z]+", "_", words).strip("_")[:64] or "error"
    return f"worker_{words}"[:64] if words in LEDGER_REASONS else words


def note_of(error: BaseException) -> str:
    """The exception's text, cut to what a note may hold."""
    text = f"{type(error).__name__}: {error}"
    return text.encode()[:MOST_BYTES_OF_NOTE].decode(errors="ignore")
