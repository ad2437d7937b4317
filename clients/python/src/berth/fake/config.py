"""A run's configuration: its defaults and bounds (api.md, Run)."""

from __future__ import annotations

from .entries import Json, invalid
from .queue import POSTPONED, RETRIED, RETURNED

DEFAULTS: Json = {
    "max_concurrency": None,
    "group_size": 1,
    "auto_occupy": True,
    "drop_zero_variance": False,
    "lease_ms": 30_000,
    "reservation_timeout_ms": None,
    "stuck_timeout_ms": None,
    "stuck_max_reserved": None,
    "keep_batches": 256,
    "initial_version": 0,
    "prompt_queue": False,
    "order": "fed",
    "max_attempts": 3,
    "drop_on": [],
    "final_batch": "short",
}
DERIVED = frozenset({"slots_per_buffer", "group_candidates", "adopt_groups", "order_window"})
REQUIRED = ("batch_size", "max_staleness")
CHANGEABLE = frozenset(
    {
        "lease_ms",
        "max_concurrency",
        "reservation_timeout_ms",
        "stuck_timeout_ms",
        "stuck_max_reserved",
        "keep_batches",
    }
)
#: Those of them that are no limits, and have a value at any time.
ALWAYS_SET = frozenset({"lease_ms", "keep_batches"})


def completed(given: Json) -> Json:
    """The configuration with its defaults filled in."""
    for name in given:
        if name not in DEFAULTS and name not in DERIVED and name not in REQUIRED:
            raise invalid(name, f"unknown field `{name}`")
    for name in REQUIRED:
        if given.get(name) is None:
            raise invalid(name, f"missing field `{name}`")
    config = {**DEFAULTS, **given}
    config.setdefault("slots_per_buffer", config["batch_size"])
    config.setdefault("group_candidates", config["group_size"])
    config.setdefault("adopt_groups", config["prompt_queue"])
    config.setdefault("order_window", config["batch_size"])
    batch_size = config["batch_size"]
    _within(config, "batch_size", 1, 65_536)
    _within(config, "max_staleness", 0, 64)
    _within(config, "slots_per_buffer", batch_size, 2 * batch_size + 64)
    _within(config, "group_candidates", config["group_size"], 1024)
    _check_changeable(config)
    if config["drop_zero_variance"] and config["group_size"] == 1:
        raise invalid("drop_zero_variance", "it needs groups")
    for reason in config["drop_on"]:
        if reason not in RETRIED | RETURNED | POSTPONED:
            raise invalid("drop_on", f"{reason} is none of the reasons whose prompts are tried again")
    return config


def changed(config: Json, changes: Json) -> Json:
    """The configuration with some of what may be changed changed; None unsets a limit."""
    for name, value in changes.items():
        if name not in CHANGEABLE:
            raise invalid(name, f"unknown field `{name}`")
        if value is None and name in ALWAYS_SET:
            raise invalid(name, "it cannot be unset")
    config = {**config, **changes}
    _check_changeable(config)
    return config


def _check_changeable(config: Json) -> None:
    _within(config, "lease_ms", 1000, 3_600_000)
    _within(config, "max_concurrency", config["group_candidates"], 10**9)
    _within(config, "keep_batches", 1, 10**6)
    for name in ("reservation_timeout_ms", "stuck_timeout_ms"):
        _within(config, name, 1, 31_536_000_000)


def _within(config: Json, name: str, least: int, most: int) -> None:
    value = config.get(name)
    if value is not None and not least <= value <= most:
        raise invalid(name, f"{value} is not within {least} and {most}")


def differing(one: Json, other: Json) -> list[str]:
    """The fields that differ, but for those that may be changed."""
    return [name for name in one if name not in CHANGEABLE and one[name] != other[name]]
