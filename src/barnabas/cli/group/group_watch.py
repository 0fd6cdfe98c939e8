"""`barnabas group watch`: a group's members, partitions and lag, looked at again and again until Ctrl-C.

On a terminal it is a table that stays in its place. Into a pipe or a file goes one line for each look, or with `--json`
one object, so that what was seen can be kept.
"""

import asyncio
import sys
from abc import ABC, abstractmethod
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.base.clock import SystemClock
from barnabas.cli.group.group_arguments import Committed, Group, isolation_of
from barnabas.cli.remote import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, with_cluster

if TYPE_CHECKING:
    from rich.console import RenderableType

    from barnabas.base.ids import TimestampMs
    from barnabas.cli.group.group_view import GroupView
    from barnabas.client.cluster import Cluster
    from barnabas.client.offsets import Isolation

_INTERVAL_SECONDS: Final = 2.0
_INTERVAL_SECONDS_MIN: Final = 0.1


def watch(
    group: Group,
    interval: Annotated[
        float,
        typer.Option("--interval", "-i", metavar="SECONDS", help="How often to refresh.", min=_INTERVAL_SECONDS_MIN),
    ] = _INTERVAL_SECONDS,
    limit: Annotated[
        int | None, typer.Option("-n", metavar="COUNT", help="Stop after this many refreshes.", min=1)
    ] = None,
    committed: Committed = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Watch a group: members, partitions, lag. Ends with Ctrl-C.

    Example: barnabas group watch billing --interval 1
    """
    screen: _Screen = _Json() if as_json else _Table() if sys.stdout.isatty() else _Lines()

    async def work(cluster: "Cluster") -> None:
        await _watch(cluster, group, isolation_of(committed), screen, interval, limit)

    with screen:
        with_cluster(bootstrap, work, is_stream=True)


async def _watch(
    cluster: "Cluster", group: str, isolation: "Isolation", screen: "_Screen", interval: float, limit: int | None
) -> None:
    """A group that is not there may come: that is shown, and looked at again."""
    from barnabas.cli.group.group_lag import LagMeter
    from barnabas.cli.group.group_view import look

    clock = SystemClock()
    meter = LagMeter(cluster, isolation)
    looks = 0
    while True:
        now_ms = clock.now_ms()
        screen.show(group, await look(cluster, group, meter, now_ms), now_ms)
        looks += 1
        if looks == limit:
            return
        await asyncio.sleep(interval)


class _Screen(ABC):
    """Where looks are shown."""

    def __enter__(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Before the first look."""

    def __exit__(self, *_: object) -> None:  # noqa: B027 - nor to put back
        """After the last one."""

    @abstractmethod
    def show(self, group: str, view: "GroupView | None", now_ms: "TimestampMs") -> None:
        """`view` is None while there is no such group."""


class _Lines(_Screen):
    def show(self, group: str, view: "GroupView | None", now_ms: "TimestampMs") -> None:
        from barnabas.cli.group.group_view import summary
        from barnabas.cli.output import plural, say

        if view is None:
            say(f"{_clock_text(now_ms)}  group '{group}' does not exist")
        else:
            members = plural(len(view.description.members), "member")
            state = (
                f"{view.description.state}, {members}" if view.description.are_members_known else view.description.state
            )
            say(f"{_clock_text(now_ms)}  {state}, {summary(view)}")
        sys.stdout.flush()


class _Json(_Screen):
    def show(self, group: str, view: "GroupView | None", now_ms: "TimestampMs") -> None:
        from barnabas.cli.group.group_view import view_fields
        from barnabas.cli.output import say_json

        fields: dict[str, Any] = {"group": group, "state": None}
        if view is not None:
            fields = view_fields(view, with_members=True, with_offsets=True)
        say_json({"at_ms": now_ms, **fields})
        sys.stdout.flush()


class _Table(_Screen):
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

    def show(self, group: str, view: "GroupView | None", now_ms: "TimestampMs") -> None:
        self._live.update(drawn(group, view, now_ms), refresh=True)


def drawn(group: str, view: "GroupView | None", now_ms: "TimestampMs") -> "RenderableType":
    from rich.console import Group as Together
    from rich.table import Table
    from rich.text import Text

    from barnabas.cli.group.group_view import OFFSET_COLUMNS, heading, notes, offset_rows, short_names, summary

    if view is None:
        return Text(f"{_clock_text(now_ms)}  group '{group}' does not exist", style="yellow")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in OFFSET_COLUMNS:
        table.add_column(name.rstrip("#"), justify="right" if name.endswith("#") else "left", overflow="fold")
    names = short_names(view.description.members)
    for lag, row in zip(view.lags, offset_rows(view, names), strict=True):
        table.add_row(*row, style="" if lag.lag == 0 else "yellow")
    below = [f"{names[member.member_id]} has no partition" for member in view.spare] + notes(view)
    return Together(
        Text(f"{_clock_text(now_ms)}  {heading(view.description)}"),
        table,
        Text(summary(view), style="bold"),
        *(Text(line, style="yellow") for line in below),
    )


def _clock_text(now_ms: "TimestampMs") -> str:
    return datetime.fromtimestamp(now_ms / 1000).astimezone().strftime("%H:%M:%S")
