"""A bug of our own ends its owner: one exception handler for an event loop, shared by every owner on that loop.

An owner (a broker) enters `supervised` and creates its tasks in the context that it gets. Whatever these tasks create
(callbacks, timers, transports, further tasks) inherits the context, and so an exception that nobody catches can be
traced back:

| the exception escaped from | how its owner is found |
|---|---|
| a callback, a timer, a reader | the context of its handle |
| a task | `Tasks` reports it at once, in the owner's context |
| a protocol (uvloop calls the handler outside of any context) | `protocol.context`, where it has one |
| code that names no owner | every owner on the loop: nobody knows whose state is wrong |

The exception goes to the owner's `on_bug`. What a garbage collector finds ("exception was never retrieved") is only
passed on: nobody waited for that result any more, which is no bug in itself, and every task that must not fail silently
belongs to a `Tasks`. What is passed on goes to the handler that the loop had before, or to the loop's own, which logs.
The last owner that leaves restores the handler that it found.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, TypeAlias

OnBug: TypeAlias = Callable[[BaseException], None]
_PreviousHandler: TypeAlias = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None


class _Owner:
    """Told from all others by its identity."""

    __slots__ = ("on_bug",)

    def __init__(self, on_bug: OnBug) -> None:
        self.on_bug = on_bug


_OWNER: Final[ContextVar[_Owner | None]] = ContextVar("barnabas_owner", default=None)


@contextmanager
def supervised(loop: asyncio.AbstractEventLoop, on_bug: OnBug) -> Iterator[Context]:
    """The context in which an owner creates its tasks. `on_bug` is called on the loop, perhaps more than once."""
    handler = loop.get_exception_handler()
    if not isinstance(handler, _LoopHandler):
        handler = _LoopHandler(handler)
        loop.set_exception_handler(handler)
    owner = _Owner(on_bug)
    handler.owners[owner] = None
    context = copy_context()
    context.run(_OWNER.set, owner)
    try:
        yield context
    finally:
        del handler.owners[owner]
        if not handler.owners and loop.get_exception_handler() is handler:
            loop.set_exception_handler(handler.previous)


def report_bug(loop: asyncio.AbstractEventLoop, message: str, bug: BaseException) -> None:
    """Hands the exception of the running code to its owner, as if nobody had caught it."""
    # Without the task or handle: newer Pythons would enter its context, which may be entered already.
    loop.call_exception_handler({"message": message, "exception": bug})


class _LoopHandler:
    """What the event loop calls."""

    def __init__(self, previous: _PreviousHandler) -> None:
        self.previous = previous
        self.owners: dict[_Owner, None] = {}

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        bug = context.get("exception")
        if bug is None or "future" in context:
            self._pass_on(loop, context)
            return
        owner = _owner_of(context)
        if owner is None:
            for every in tuple(self.owners):
                every.on_bug(bug)
        elif owner in self.owners:
            owner.on_bug(bug)
        else:  # it has left
            self._pass_on(loop, context)

    def _pass_on(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if self.previous is None:
            loop.default_exception_handler(context)
        else:
            self.previous(loop, context)


def _owner_of(context: Mapping[str, Any]) -> _Owner | None:
    owner = _OWNER.get()
    if owner is not None:
        return owner
    places = (getattr(context.get("handle"), "_context", None), getattr(context.get("protocol"), "context", None))
    for place in places:
        if isinstance(place, Context) and (owner := place.get(_OWNER)) is not None:
            return owner
    return None
