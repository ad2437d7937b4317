"""The client for asyncio: as :mod:`berth`, with coroutines. What the ledger cancels is cancelled as asyncio cancels.

The heartbeats run on threads of their own here too: an event loop that an engine keeps busy keeps its lease.
"""

from ._serving import AsyncRefresh, Generate, GenerateMember
from .client import Client, connect
from .run import Run
from .slot import Member, Slot
from .trainer import Trainer
from .worker import Worker

__all__ = [
    "AsyncRefresh",
    "Client",
    "Generate",
    "GenerateMember",
    "Member",
    "Run",
    "Slot",
    "Trainer",
    "Worker",
    "connect",
]
