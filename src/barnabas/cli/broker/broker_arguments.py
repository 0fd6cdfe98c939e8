"""The options that `barnabas up` and `barnabas broker` share."""

from pathlib import Path
from typing import Annotated, Final

import typer

from barnabas.base.logs import LogFormat, LogLevel
from barnabas.cli import completion
from barnabas.cli.ports import PORT_MAX
from barnabas.cli.remote import DEFAULT_BOOTSTRAP

DATA_DIRECTORY: Final = "barnabas-data"

Listen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help=f"Where to serve clients; port 0 picks a free one. [default: {DEFAULT_BOOTSTRAP}]",
        show_default=False,
    ),
]
DataDirectory = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help=f"The data directory. [default: ./{DATA_DIRECTORY}]", show_default=False),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the broker; may be repeated.",
        autocompletion=completion.broker_assignments,
    ),
]
ConfigFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Settings in the format of Kafka's server.properties.")
]
ZooKeeper = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT[/PATH]",
        help="The ZooKeeper of the cluster; several servers are separated by commas.",
        show_default=False,
    ),
]
MetricsListen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Where to serve /metrics, /healthz and /readyz over HTTP.", show_default=False
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        help="Like --metrics-listen, with the host of --listen.",
        min=0,
        max=PORT_MAX,
        show_default=False,
    ),
]
Format = Annotated[LogFormat, typer.Option(help="The format of the log.")]
Level = Annotated[LogLevel, typer.Option(help="The lowest level that is logged.", case_sensitive=False)]
