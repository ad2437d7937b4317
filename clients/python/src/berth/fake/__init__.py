"""A ledger in memory, for unit tests of rollout and training code: no server, no Redis, no sleeping.

>>> from berth.fake import FakeServer
>>> server = FakeServer()
>>> run = server.connect().run("test", batch_size=2, max_staleness=1)
>>> with run.worker("w") as worker:
...     for slot in worker.reserve_up_to(2, version=0):
...         placed = slot.occupy(reward=1.0, tokens=7)
>>> with run.trainer() as trainer:
...     len(trainer.next_batch().batch)
2

It places entries as the server does, and is held to the server by the same tests. It keeps no lengths for ``distribution``, says
little in ``explain``, and checks no more of a request than its fields.
"""

from .server import AsyncFakeTransport, FakeServer, FakeTransport

__all__ = ["AsyncFakeTransport", "FakeServer", "FakeTransport"]
