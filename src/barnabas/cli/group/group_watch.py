"""`barnabas group watch`: a group's members, partitions and lag, looked at again and again until Ctrl-C."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.cli.group.group_arguments import Committed, Group, isolation_of
from barnabas.cli.remote import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from barnabas.cli.watching import INTERVAL_SECONDS, Interval, Limit, Looking, clock_text, watch_cluster

if TYPE_CHECKING:
    from rich.console import RenderableType

    from barnabas.base.ids import TimestampMs
    from barnabas.cli.group.group_view import GroupView
    from barnabas.client.cluster import Cluster


def watch(
    group: Group,
    interval: Interval = INTERVAL_SECONDS,
    limit: Limit = None,
    committed: Committed = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Watch a group: members, partitions, lag. Ends with Ctrl-C.

    Example: barnabas group watch billing --interval 1
    """

    def start(cluster: "Cluster") -> Looking:
        from barnabas.cli.group.group_lag import LagMeter
        from barnabas.cli.group.group_view import look

        meter = LagMeter(cluster, isolation_of(committed))

        async def look_once(now_ms: "TimestampMs") -> GroupLook:
            return GroupLook(group, await look(cluster, group, meter, now_ms), now_ms)

        return look_once

    watch_cluster(bootstrap, start, as_json=as_json, interval=interval, limit=limit)


@dataclass(frozen=True, slots=True)
class GroupLook:
    """`view` is None while there is no such group: it may come."""

    group: str
    view: "GroupView | None"
    now_ms: "TimestampMs"

    def line(self) -> str:
        from barnabas.cli.group.group_view import summary
        from barnabas.cli.output import plural

        if self.view is None:
            return f"group '{self.group}' does not exist"
        description = self.view.description
        members = f", {plural(len(description.members), 'member')}" if description.are_members_known else ""
        return f"{description.state}{members}, {summary(self.view)}"

    def fields(self) -> Mapping[str, Any]:
        from barnabas.cli.group.group_view import view_fields

        if self.view is None:
            return {"group": self.group, "state": None}
        return view_fields(self.view, with_members=True, with_offsets=True)

    def drawn(self) -> "RenderableType":
        from rich.console import Group as Together
        from rich.table import Table
        from rich.text import Text

        from barnabas.cli.group.group_view import OFFSET_COLUMNS, heading, notes, offset_rows, short_names, summary

        view = self.view
        if view is None:
            return Text(f"{clock_text(self.now_ms)}  {self.line()}", style="yellow")
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in OFFSET_COLUMNS:
            table.add_column(name.rstrip("#"), justify="right" if name.endswith("#") else "left", overflow="fold")
        names = short_names(view.description.members)
        for lag, row in zip(view.lags, offset_rows(view, names), strict=True):
            table.add_row(*row, style="" if lag.lag == 0 else "yellow")
        below = [f"{names[member.member_id]} has no partition" for member in view.spare] + notes(view)
        return Together(
            Text(f"{clock_text(self.now_ms)}  {heading(view.description)}"),
            table,
            Text(summary(view), style="bold"),
            *(Text(line, style="yellow") for line in below),
        )
