"""What can go wrong: one exception class for each code of the contract, and those of the client itself."""

from __future__ import annotations

from typing import Any, ClassVar


class BerthError(Exception):
    """The base of all that this package raises."""


class Unreachable(BerthError):
    """No server answered within the patience of the client's :class:`berth.Retry`. Whether the call had its effect is unknown."""


class MalformedAnswer(BerthError):
    """Something answered that does not speak the contract: a proxy, or another server."""


class SlotCancelled(BerthError):
    """The ledger took the reservation away: nobody needs the rest of the generation. See :meth:`berth.Slot.raise_if_cancelled`."""

    def __init__(self, id: str, reason: str) -> None:
        super().__init__(f"{id} was cancelled: {reason}")
        self.id = id
        self.reason = reason

    def __reduce__(self) -> tuple[type[SlotCancelled], tuple[str, str]]:
        # Exceptions go from process to process, as between the actors of a Ray job.
        return type(self), (self.id, self.reason)


class NotPublished(BerthError):
    """The trainer asked for the next batch before it published the version that the last one trains into."""


class NotOpen(BerthError):
    """A worker or trainer was used outside its ``with`` block, or in a fork of its process, or a client after it was closed."""


class Refused(BerthError):
    """The server refused the call. Subclasses stand for the codes; a code that this client does not know is a plain ``Refused``."""

    code: str = ""
    _by_code: ClassVar[dict[str, type[Refused]]] = {}

    def __init__(self, call: str, status: int, problem: dict[str, Any]) -> None:
        self.call = call
        """Method and path."""
        self.status = status
        """The HTTP status."""
        self.problem = problem
        """The whole RFC 9457 document."""
        self.code = str(problem.get("code", self.code))
        self.detail: str = str(problem.get("detail", ""))
        super().__init__(f"{call}: {status} {self.code}: {self.detail}")

    def __reduce__(self) -> tuple[type[Refused], tuple[str, int, dict[str, Any]]]:
        return type(self), (self.call, self.status, self.problem)

    def __init_subclass__(cls) -> None:
        Refused._by_code[cls.code] = cls

    @property
    def is_definite(self) -> bool:
        """Whether the call had no effect. Of what a server says while it has no database, or a proxy without a server, that is unknown."""
        return self.status < 500

    @staticmethod
    def of(call: str, status: int, problem: dict[str, Any]) -> Refused:
        """The exception for a problem document."""
        return Refused._by_code.get(str(problem.get("code")), Refused)(call, status, problem)


class InvalidRequest(Refused):
    """The request is not what the contract says; ``problem["field"]`` says where."""

    code = "invalid_request"


class Unauthenticated(Refused):
    """The server wants a token."""

    code = "unauthenticated"


class Forbidden(Refused):
    """The token's role does not allow the call, or the server is not called by its name."""

    code = "forbidden"


class UnknownPath(Refused):
    """Nothing is served under this path: the server may be older than the client."""

    code = "unknown_path"


class UnknownRun(Refused):
    """No such run, or it was deleted."""

    code = "unknown_run"


class UnknownTrajectory(Refused):
    """No such trajectory, or it is forgotten."""

    code = "unknown_trajectory"


class UnknownBatch(Refused):
    """No such batch yet."""

    code = "unknown_batch"


class MethodNotAllowed(Refused):
    """The path takes other methods."""

    code = "method_not_allowed"


class RunExists(Refused):
    """The run exists with another configuration; :attr:`fields` names the differing fields."""

    code = "run_exists"

    @property
    def fields(self) -> list[str]:
        """The fields that differ."""
        return [str(field) for field in self.problem.get("fields", [])]


class VersionTooStale(Refused):
    """The weights are too old to be of use: fetch newer ones."""

    code = "version_too_stale"


class VersionNotPublished(Refused):
    """The version is above the latest published one, or its weights were abandoned by a rewind."""

    code = "version_not_published"


class TrajectoryDiscarded(Refused):
    """The trajectory was discarded; :attr:`reason` says why."""

    code = "trajectory_discarded"

    @property
    def reason(self) -> str:
        """Why it was discarded."""
        return str(self.problem.get("reason", ""))


class TrajectoryTaken(Refused):
    """The trajectory is in a batch already."""

    code = "trajectory_taken"


class Superseded(Refused):
    """The trajectory's prompt was handed out again, has failed or was dropped."""

    code = "superseded"


class GroupIncomplete(Refused):
    """Fewer than ``group_size`` members are complete."""

    code = "group_incomplete"


class SegmentOutOfOrder(Refused):
    """Versions and tokens of segments must rise."""

    code = "segment_out_of_order"


class RequestIdReused(Refused):
    """The request id was used for another request."""

    code = "request_id_reused"


class FeedGap(Refused):
    """The page of prompts starts behind what was fed."""

    code = "feed_gap"


class NoPromptQueue(Refused):
    """The run was created without ``prompt_queue``."""

    code = "no_prompt_queue"


class Draining(Refused):
    """The run is being drained: no prompts can be fed."""

    code = "draining"


class Fenced(Refused):
    """This process is a zombie: a newer session of the same worker, or a newer trainer, has taken its place. Stop."""

    code = "fenced"


class PublishOutOfOrder(Refused):
    """Another version is to be published next: :attr:`expected`."""

    code = "publish_out_of_order"

    @property
    def expected(self) -> int | None:
        """The version that is to be published next, if the server said it."""
        expected = self.problem.get("expected")
        return int(expected) if expected is not None else None


class OtherBatch(Refused):
    """Another batch is the next one than the caller means."""

    code = "other_batch"


class LedgerBehind(Refused):
    """The database has lost writes that were acknowledged. A trainer session that resumes ends it."""

    code = "ledger_behind"


class BatchPruned(Refused):
    """A batch that is needed is no longer kept."""

    code = "batch_pruned"


class EventsPruned(Refused):
    """The log does not reach back so far; :attr:`first_seq` is the oldest event that is kept."""

    code = "events_pruned"

    @property
    def first_seq(self) -> int | None:
        """The sequence number of the oldest kept event."""
        first = self.problem.get("first_seq")
        return int(first) if first is not None else None


class TooLarge(Refused):
    """The body is too large."""

    code = "too_large"


class UnsupportedMediaType(Refused):
    """The body must be ``application/json``."""

    code = "unsupported_media_type"


class TooManyWaiting(Refused):
    """As many calls wait as may."""

    code = "too_many_waiting"


class NewerLayout(Refused):
    """The database was written by a newer Berth."""

    code = "newer_layout"


class DatabaseUnavailable(Refused):
    """The database does not answer. Whether the call had its effect is unknown."""

    code = "database_unavailable"


class Internal(Refused):
    """A fault of the server's own."""

    code = "internal"
