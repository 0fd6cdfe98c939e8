"""A value that is written and read by several at once: which values may a read have seen?

A write takes effect at some moment between its call and its answer; one without an answer, at any moment after its call
or never (`calls.Span`). A read may have seen any value that was written, unless another write came after it and was
complete before the read began. A value that was read is written for good: later reads do not see earlier ones.

Losses (a broker that lost power) may undo every write that was called before them.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from barnabas.sim.checkers.calls import Span

Value = TypeVar("Value", bound=Hashable)


@dataclass(frozen=True, slots=True)
class _Write(Generic[Value]):
    span: Span
    value: Value


class Register(Generic[Value]):
    """Reads must be asked about in the order of their answers."""

    def __init__(self, initial: Value, losses: Sequence[float] = ()) -> None:
        self._losses = losses
        self._writes = [_Write(Span(-inf, -inf), initial)]
        self._seen: list[_Write[Value]] = []

    def write(self, span: Span, value: Value) -> None:
        self._writes.append(_Write(span, value))

    def objection(self, value: Value, read: Span) -> str | None:
        """Why a read cannot have seen the value; None when it can."""
        assert read.done_at is not None, "only an answer can be judged"
        done_at = read.done_at
        known = [one for one in self._writes if one.span.called_at <= done_at]
        candidates = [one for one in known if one.value == value]
        if not candidates:
            return "which nobody had written"
        complete = [
            one
            for one in (*known, *self._seen)
            if one.span.done_at is not None
            and one.span.done_at <= read.called_at
            and not any(one.span.called_at <= at <= done_at for at in self._losses)
        ]
        overruled = [next((one for one in complete if old.span.precedes(one.span)), None) for old in candidates]
        if all(overruled):
            newer = max((one for one in overruled if one is not None), key=lambda one: one.span.called_at)
            return f"though {newer.value!r} was written between {_times(newer.span)}"
        possible = [old for old, newer in zip(candidates, overruled, strict=True) if newer is None]
        self._seen.append(_Write(Span(min(one.span.called_at for one in possible), done_at), value))
        return None


def _times(span: Span) -> str:
    return f"{span.called_at:.3f} and {span.done_at:.3f} s"
