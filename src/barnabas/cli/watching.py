"""Looks at something of a cluster again and again until Ctrl-C: what the `watch` commands share.

On a terminal it is a picture that stays in its place. Into a pipe or a file goes one line for each look, or with
`--json` one object, so that what was seen can be kept.
"""

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeAlias

import typer

from barnabas.base.clock import SystemClock
from barnabas.cli.remote import with_cluster

if TYPE_CHECKING:
    from rich.console import RenderableType

    from barnabas.base.ids import TimestampMs
    from barnabas.client.cluster import Cluster

INTERVAL_SECONDS: Final = 2.0
_INTERVAL_SECONDS_MIN: Final = 0.1

Interval = Annotated[
    float,
    typer.Option("--interval", "-i", metavar="SECONDS", help="How often to refresh.", min=_INTERVAL_SECONDS_MIN),
]
Limit = Annotated[int | None, typer.Option("-n", metavar="COUNT", help="Stop after this many refreshes.", min=1)]


class Look(Protocol):
    """What one look has found, in the forms in which it can be shown."""

    def line(self) -> str: ...

    def fields(self) -> Mapping[str, Any]: ...

    def drawn(self) -> "RenderableType": ...


Looking: TypeAlias = "Callable[[TimestampMs], Awaitable[Look]]"
"""Looks once; is told when that is."""


def watch_cluster(
    bootstrap: str, start: "Callable[[Cluster], Looking]", *, as_json: bool, interval: float, limit: int | None
) -> None:
    """`limit` is how many looks there are at most."""
    screen: _Screen = _Json() if as_json else _Picture() if sys.stdout.isatty() else _Lines()

    async def work(cluster: "Cluster") -> None:
        clock = SystemClock()
        look_once = start(cluster)
        looks = 0
        while True:
            now_ms = clock.now_ms()
            screen.show(await look_once(now_ms), now_ms)
            looks += 1
            if looks == limit:
                return
            await asyncio.sleep(interval)

    with screen:
        with_cluster(bootstrap, work, is_stream=True)


class _Screen(ABC):
    """Where looks are shown."""

    def __enter__(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Before the first look."""

    def __exit__(self, *_: object) -> None:  # noqa: B027 - nor to put back
        """After the last one."""

    @abstractmethod
    def show(self, look: Look, now_ms: "TimestampMs") -> None: ...


class _Lines(_Screen):
    def show(self, look: Look, now_ms: "TimestampMs") -> None:
        from barnabas.cli.output import say

        say(f"{clock_text(now_ms)}  {look.line()}")
        sys.stdout.flush()


class _Json(_Screen):
    def show(self, look: Look, now_ms: "TimestampMs") -> None:
        from barnabas.cli.output import say_json

        say_json({"at_ms": now_ms, **look.fields()})
        sys.stdout.flush()


class _Picture(_Screen):
    """Keeps its place on the terminal."""

    def __init__(self) -> None:
        from rich.live import Live

        from barnabas.cli.output import console

        screen = console()
        screen.soft_wrap = False  # a line that is too long is broken, not cut
        self._live = Live(console=screen, auto_refresh=False)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, look: Look, now_ms: "TimestampMs") -> None:
        self._live.update(look.drawn(), refresh=True)


def clock_text(now_ms: "TimestampMs") -> str:
    return datetime.fromtimestamp(now_ms / 1000).astimezone().strftime("%H:%M:%S")
