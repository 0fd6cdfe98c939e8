"""Calls with their answers, and when they took effect.

| the call | took effect |
|---|---|
| is done | between call and answer |
| is done, later than a client waits for one answer | then, and perhaps again: what was sent first may come last |
| failed, or has no answer | never, or at any time since |
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from barnabas.sim.histories.actors import CLUSTER_OPTIONS
from barnabas.sim.histories.events import (
    AdminCalled,
    AdminDone,
    CommitCalled,
    CommitDone,
    CommittedAsked,
    CommittedSeen,
    History,
)


@dataclass(frozen=True, slots=True)
class Span:
    """From a call to its answer."""

    called_at: float
    done_at: float | None

    @property
    def is_done(self) -> bool:
        return self.done_at is not None

    @property
    def effective_by(self) -> float:
        """Nothing of it happens after this."""
        if self.done_at is None or self.done_at - self.called_at >= CLUSTER_OPTIONS.connection.request_timeout_seconds:
            return inf
        return self.done_at

    def precedes(self, other: "Span") -> bool:
        """Whether all of it happened before the other was called."""
        return self.effective_by < other.called_at


@dataclass(frozen=True, slots=True)
class AdminCall:
    called: AdminCalled
    span: Span
    result: object

    @property
    def topic(self) -> str:
        return str(self.called.argument("topic"))


@dataclass(frozen=True, slots=True)
class CommitCall:
    called: CommitCalled
    span: Span


@dataclass(frozen=True, slots=True)
class CommittedCall:
    """A question that was answered."""

    seen: CommittedSeen
    span: Span


def admin_calls(history: History, *actions: str) -> Iterator[AdminCall]:
    answers = {event.number: event for event in history.of(AdminDone)}
    for called in history.of(AdminCalled):
        if called.action in actions:
            answer = answers.get(called.number)
            span = Span(called.at, None if answer is None else answer.at)
            yield AdminCall(called, span, None if answer is None else answer.result)


def commit_calls(history: History) -> Iterator[CommitCall]:
    answers = {event.number: event.at for event in history.of(CommitDone)}
    for called in history.of(CommitCalled):
        yield CommitCall(called, Span(called.at, answers.get(called.number)))


def committed_calls(history: History) -> Iterator[CommittedCall]:
    asked = {event.number: event.at for event in history.of(CommittedAsked)}
    for seen in history.of(CommittedSeen):
        yield CommittedCall(seen, Span(asked[seen.number], seen.at))
