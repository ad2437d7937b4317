"""The prompt queue (protocol.md, The prompt queue)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .entries import Entry, Json, Problem, Prompt, conflict

STATES = ("queued", "in_flight", "occupied", "trained", "filtered", "failed", "dropped")
#: Back to the front, the attempt counted.
RETRIED = frozenset({"lease_expired", "worker_restarted"})
#: Back to the front, the attempt not counted.
RETURNED = frozenset({"abandoned", "rewound", "too_stale", "surplus"})
#: To the back, the attempt counted.
POSTPONED = frozenset({"stuck_timeout", "timed_out", "group_failed"})


@dataclass
class PromptQueue:
    """All prompts that were fed, each in one state."""

    order: str
    window: int
    max_attempts: int
    drop_on: frozenset[str]
    prompts: list[Prompt] = field(default_factory=list)
    returns: int = 0

    @property
    def fed(self) -> int:
        """How many were fed."""
        return len(self.prompts)

    def feed(self, offset: int | None, page: Iterable[Json], draining: bool) -> int:
        """Takes in a page; what was fed before is ignored."""
        page = list(page)
        start = self.fed if offset is None else offset
        if start > self.fed:
            raise conflict("feed_gap", f"the page starts at {start}, and {self.fed} were fed", fed=self.fed)
        new = page[self.fed - start :]
        if new and draining:
            raise conflict("draining", "the run is being drained")
        for fields in new:
            position = self.fed
            tokens = fields.get("expected_tokens")
            rank = self._rank(position, tokens)
            self.prompts.append(Prompt(fields["id"], fields.get("data"), tokens, position, rank))
        return self.fed

    def _rank(self, position: int, tokens: int | None) -> tuple[float, ...]:
        if self.order != "longest_first":
            return (0, position)
        # Unknown lengths after the known ones of their window.
        return (0, position // self.window, -(tokens if tokens is not None else -1), position)

    def queued(self) -> list[Prompt]:
        """Those that wait, in the order in which they are handed out."""
        return sorted((prompt for prompt in self.prompts if prompt.state == "queued"), key=lambda prompt: prompt.rank)

    def hand_out(self, prompt: Prompt, entry: Entry) -> None:
        """It is generated in this entry."""
        prompt.state, prompt.holder = "in_flight", entry.id
        entry.queued, entry.prompt, entry.attempt = prompt, prompt.id, prompt.tries + 1

    def give_back(self, entry: Entry, reason: str, requeue: bool) -> None:
        """Its entry was discarded."""
        prompt = entry.queued
        if prompt is None or prompt.holder != entry.id:
            return
        prompt.reason = reason
        # A late occupy counts as the attempt that it was.
        prompt.tries = entry.attempt - 1
        from_occupied = entry.discarded_from == "occupied"
        if reason in self.drop_on or reason == "drained":
            prompt.state = "dropped"
        elif reason in RETURNED:
            self._put_in_front(prompt)
        elif reason in RETRIED or requeue or reason in POSTPONED:
            if prompt.tries + 1 >= self.max_attempts:
                prompt.state = "failed"
                return
            prompt.tries += 1
            self._put_in_front(prompt)
            if reason in POSTPONED:
                self.returns += 1
                prompt.rank = (1, self.returns)
        else:
            prompt.state = "filtered" if reason == "zero_variance" or from_occupied else "failed"

    def _put_in_front(self, prompt: Prompt) -> None:
        prompt.state, prompt.rank = "queued", self._rank(prompt.position, prompt.expected_tokens)

    def follow(self, entry: Entry, state: str) -> None:
        """Its entry is occupied, or trained; a late one takes its prompt out of the queue again, as the attempt that it was."""
        prompt = entry.queued
        if prompt is not None:
            prompt.state, prompt.holder, prompt.tries = state, entry.id, entry.attempt - 1

    def is_superseded(self, entry: Entry) -> bool:
        """Whether a discarded entry's prompt went on without it: also if it is queued once more since."""
        prompt = entry.queued
        return prompt is not None and (prompt.state != "queued" or prompt.holder != entry.id)

    def forget(self, entry: Entry) -> None:
        """Its entry was trained, and is forgotten with its batch: the prompt stays counted."""
        if entry.queued is not None:
            entry.queued.is_listed = False

    def counts(self) -> dict[str, int]:
        """How many are in each state."""
        return {state: sum(prompt.state == state for prompt in self.prompts) for state in STATES}

    def page(self, state: str | None, after: int, limit: int) -> Json:
        """A page of those in a state: the queued ones in the order in which they are handed out, others in that of feeding."""
        if state == "queued":
            queue = self.queued()
            more = after + limit if len(queue) > after + limit else None
            return self._page(queue[after : after + limit], more)
        listed = [each for each in self.prompts if each.position >= after and each.is_listed]
        found = [each for each in listed if state in (None, each.state)]
        return self._page(found[:limit], found[limit].position if len(found) > limit else None)

    def _page(self, prompts: list[Prompt], more: int | None) -> Json:
        return {"fed": self.fed, "counts": self.counts(), "prompts": [_shown(each) for each in prompts], "next": more}


def _shown(prompt: Prompt) -> Json:
    shown = {
        "id": prompt.id,
        "position": prompt.position,
        "state": prompt.state,
        "attempt": prompt.tries + 1,
        "expected_tokens": prompt.expected_tokens,
        "data": prompt.data,
        "reason": prompt.reason,
        "trajectory": prompt.holder,
    }
    return {key: value for key, value in shown.items() if value is not None}


def no_queue() -> Problem:
    """The run has no queue."""
    return conflict("no_prompt_queue", "the run was created without prompt_queue")
