"""`barnabas cluster`: shows the brokers of a cluster, and restores its topics when ZooKeeper has lost them."""

from typing import TYPE_CHECKING

import typer

from barnabas.cli.cluster.cluster_rebuild_command import rebuild
from barnabas.cli.remote import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, with_cluster
from barnabas.cli.watching import INTERVAL_SECONDS, Interval, Limit, Looking, watch_cluster

if TYPE_CHECKING:
    from barnabas.base.ids import TimestampMs
    from barnabas.cli.cluster.cluster_view import ClusterLook
    from barnabas.client.cluster import Cluster

app = typer.Typer(help="Show the cluster, or restore its topics.", rich_markup_mode=None)
app.command()(rebuild)


@app.callback()
def cluster_commands() -> None:
    """Show the cluster, or restore its topics."""


@app.command()
def describe(as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show the brokers, what they lead, and what is in trouble."""
    from barnabas.cli.cluster.cluster_view import COLUMNS, look
    from barnabas.cli.output import remark, say, say_json, say_table

    view = with_cluster(bootstrap, look)
    if as_json:
        say_json(view.fields())
        return
    say(view.heading)
    say_table(COLUMNS, view.rows())
    for problem in view.problems:
        remark(problem)


@app.command()
def watch(
    interval: Interval = INTERVAL_SECONDS,
    limit: Limit = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Watch the brokers, what they lead, and what is in trouble.

    Ends with Ctrl-C.

    Example: barnabas cluster watch --interval 1
    """

    def start(cluster: "Cluster") -> Looking:
        from barnabas.cli.cluster.cluster_view import ClusterLook, look

        async def look_once(now_ms: "TimestampMs") -> "ClusterLook":
            return ClusterLook(await look(cluster), now_ms)

        return look_once

    watch_cluster(bootstrap, start, as_json=as_json, interval=interval, limit=limit)
