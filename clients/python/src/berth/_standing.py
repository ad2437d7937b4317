"""Where a trainer stands: its epoch and versions, kept from what it is answered. Knows no I/O; both forms share it."""

from __future__ import annotations

import uuid

from . import models as m
from ._call import Call
from ._calls import RunCalls
from ._opening import Opening
from .errors import NotOpen, NotPublished


class Standing:
    """A trainer's session as far as it was told."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._session: m.TrainerSession | None = None
        self._complete: int | None = None

    @property
    def session(self) -> m.TrainerSession:
        """What the session was answered when it opened, and where it stands since."""
        if self._session is None:
            raise NotOpen(f"trainer {self._opening.name} is used outside its `with` block")
        return self._session

    @property
    def epoch(self) -> int:
        """The session's number, which its calls carry. Ranks of a data-parallel trainer share that of rank 0."""
        return self.session.epoch

    @property
    def trainer_version(self) -> int:
        """The version that the trainer stands at; that of the next batch."""
        return self.session.trainer_version

    @property
    def policy_version(self) -> int:
        """The latest published version; above ``trainer_version`` while batches are replayed."""
        return self.session.policy_version

    @property
    def lineage(self) -> int:
        """Raised by each rewind and forced resume."""
        return self.session.lineage

    @property
    def weights(self) -> str | None:
        """The reference to the weights of ``policy_version`` as of the session's start."""
        return self.session.weights

    def _opening_call(self, calls: RunCalls) -> Call[m.TrainerSession] | None:
        opening = self._opening
        if opening.epoch is None:
            # A token of its own each time that it is entered: one that is known is given the first answer again.
            token = opening.session or uuid.uuid4().hex
            return calls.open_trainer(opening.name, token, opening.resume_from, opening.mode, opening.force)
        version = opening.trainer_version
        self._opened(m.TrainerSession(epoch=opening.epoch, trainer_version=version, policy_version=version, lineage=0))
        return None

    def _opened(self, session: m.TrainerSession) -> None:
        self._session, self._complete = session, None

    def _close(self) -> None:
        self._session = None

    def _taken(self, answer: m.NextBatch) -> m.NextBatch:
        if answer.batch is not None and answer.batch.complete:
            self._complete = answer.batch.version
        return answer

    def _published(self, version: int, answer: m.Published) -> m.Published:
        session = self.session
        # Other ranks may be further: this one goes on from what it has trained, or it would skip a batch unawares.
        trained = max(session.trainer_version, min(version, answer.trainer_version))
        self._session = m.TrainerSession(
            epoch=session.epoch,
            trainer_version=trained,
            policy_version=answer.policy_version,
            lineage=answer.lineage,
            weights=session.weights,
        )
        return answer

    def _refuse_unpublished(self) -> None:
        """Asking on would give the same batch again, without end."""
        if self._complete is not None and self._complete >= self.trainer_version:
            raise NotPublished(
                f"batch {self._complete} was given out and version {self._complete + 1} is not published: "
                "publish it before the next batch"
            )
