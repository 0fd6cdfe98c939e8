"""`barnabas zookeeper`: a ZooKeeper server, or an ensemble of them, for those who have none yet."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from barnabas.cli.ports import parse_listen
from barnabas.cli.remote import CommandFailed

if TYPE_CHECKING:
    from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers

DEFAULT_LISTEN: Final = "127.0.0.1:2181"
_DATA_DIRECTORY: Final = "zookeeper-data"
_NODES_MAX: Final = 7
_LOOK_SECONDS: Final = 0.5

app = typer.Typer(help="Run ZooKeeper.", rich_markup_mode=None)


@app.callback()
def zookeeper_commands() -> None:
    """Run ZooKeeper, which keeps the state of a cluster of brokers."""


@app.command()
def up(
    nodes: Annotated[int, typer.Option(metavar="N", min=1, help="How many servers; 3 survive the loss of one.")] = 1,
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where to serve clients; further nodes take the ports above. Port 0 picks free ones.",
        ),
    ] = DEFAULT_LISTEN,
    data_dir: Annotated[
        Path,
        typer.Option(metavar="DIR", help=f"The data directory. [default: ./{_DATA_DIRECTORY}]", show_default=False),
    ] = Path(_DATA_DIRECTORY),
) -> None:
    """Run ZooKeeper on this machine until Ctrl-C.

    Needs Java, and ZooKeeper's jars: from the system's package `zookeeper`, or from an installed `pyspark`. All servers
    of an ensemble run here; for one on several machines use the system's package.

    Example: barnabas zookeeper up --nodes 3 --data-dir /var/lib/zookeeper
    """
    from barnabas.cli.output import remark
    from barnabas.cli.zookeeper.zookeeper_jars import find_program
    from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers

    host, port = parse_listen(listen)
    if nodes % 2 == 0:
        remark(f"{nodes} nodes survive no more failures than {nodes - 1}; an odd number is better")
    if nodes > _NODES_MAX:
        remark(f"more than {_NODES_MAX} nodes only make writes slower, since a majority must confirm each")
    servers = ZooKeeperServers(find_program(), data_dir.absolute(), nodes, host, port)
    with started_servers(servers):
        _announce(servers)
        with suppress(KeyboardInterrupt):
            _watch(servers)


@contextmanager
def started_servers(servers: "ZooKeeperServers") -> Iterator[None]:
    """Servers that are ready, and stopped at the end."""
    from barnabas.cli.output import progress

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # like Ctrl-C: servers must not be left behind
    try:
        with progress("starting ZooKeeper", len(servers.nodes), unit="nodes") as advance:
            servers.start(advance)
        yield
    finally:
        servers.stop()


def _announce(servers: "ZooKeeperServers") -> None:
    """One line that it is ready. What to do with it is for a person at a terminal."""
    from barnabas.cli.output import plural, say
    from barnabas.cli.zookeeper.zookeeper_servers import broker_identity

    identity = broker_identity(servers.directory)
    count = "" if len(servers.nodes) == 1 else f" ({plural(len(servers.nodes), 'node')})"
    is_terminal = sys.stdout.isatty()
    ending = "; Ctrl-C stops it." if is_terminal else ""
    say(f"ZooKeeper {servers.version}{count} is ready on {servers.connect}; data in {servers.directory}{ending}")
    if is_terminal:
        say("For brokers:")
        say(f"  zookeeper.connect={servers.connect}")
        say(f"  their identity (user:password of the digest scheme) is in {identity}; keep it secret")
    sys.stdout.flush()


def _watch(servers: "ZooKeeperServers") -> None:
    """Until the last server has ended."""
    from barnabas.base.clock import SystemClock
    from barnabas.cli.output import remark

    clock = SystemClock()
    running = list(servers.nodes)
    while running:
        clock.sleep(_LOOK_SECONDS)
        for node in [node for node in running if not node.is_running]:
            running.remove(node)
            remark(f"node {node.address.number} has ended: {node.last_words}")
    raise CommandFailed("no server runs any more")
