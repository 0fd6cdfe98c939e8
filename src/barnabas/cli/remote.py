"""What the commands that talk to a cluster share: where it is, how to reach it, and what to say when that fails.

An error becomes one line that says what to do next. The client is imported when a command runs, so that help and
completion stay quick.
"""

from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from barnabas.base.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster
    from barnabas.client.errors import ClusterUnreachable
    from barnabas.wire.errors import KafkaError

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
_CONNECT_SECONDS_MAX: Final = 5.0
_RETRY_SECONDS_MAX: Final = 30.0
_SILENT_SECONDS_MAX: Final = 2.0

_Result = TypeVar("_Result")

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar="BARNABAS_BOOTSTRAP",
        help="A broker of the cluster; several are separated by commas.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]


class CommandFailed(BarnabasError):  # noqa: N818 - named as the fact that it is
    """The command cannot do what was asked; the message is for the person who asked."""


def with_cluster(
    bootstrap: str, work: "Callable[[Cluster], Coroutine[Any, Any, _Result]]", *, is_stream: bool = False
) -> _Result:
    """Runs the work on a cluster that answers; its errors become `CommandFailed`.

    When it takes long, a line says what it waits for. A stream takes long by nature, and speaks for itself.
    """
    import asyncio

    import uvloop

    from barnabas.client.broker_connection import ConnectionOptions
    from barnabas.client.cluster import Cluster, ClusterOptions
    from barnabas.client.errors import ClusterUnreachable
    from barnabas.wire.errors import KafkaError

    connection = ConnectionOptions(client_id="barnabas-cli", connect_timeout_seconds=_CONNECT_SECONDS_MAX)
    options = ClusterOptions(connection, retry_timeout_seconds=_RETRY_SECONDS_MAX)

    async def run() -> _Result:
        async with AsyncExitStack() as stack:
            cluster = Cluster(bootstrap, options)
            saying = asyncio.get_running_loop().call_later(_SILENT_SECONDS_MAX, _say_waiting, bootstrap, cluster)
            stack.callback(saying.cancel)
            await stack.enter_async_context(cluster)
            if is_stream:
                saying.cancel()
            return await work(cluster)

    try:
        return uvloop.run(run())
    except ClusterUnreachable as error:
        raise CommandFailed(uvloop.run(_unreachable_line(error))) from error
    except KafkaError as error:
        raise CommandFailed(error_line(error)) from error


def _say_waiting(bootstrap: str, cluster: "Cluster") -> None:
    from barnabas.cli.output import remark

    problem = "" if cluster.problem is None else f": {cluster.problem}"
    remark(f"waiting for an answer from {bootstrap}{problem}")


async def _unreachable_line(error: "ClusterUnreachable") -> str:
    """What a person should do about it, which depends on who listens there, if anybody."""
    nobody = f"no broker answers at {', '.join(error.addresses)}"
    if "refused" in error.reason:
        return f"{nobody}; start one with 'barnabas up'"
    from barnabas.client.cluster import parse_address
    from barnabas.client.strangers import Stranger, recognise

    for address in error.addresses:
        stranger = await recognise(*parse_address(address))
        if stranger is Stranger.HTTP:
            return f"{address} is {stranger.value}, not a Kafka broker; --bootstrap wants the address of a broker"
        if stranger is Stranger.TLS:
            return f"{address} is {stranger.value}, which is not supported yet; --bootstrap wants a PLAINTEXT listener"
    return f"{nobody} ({error.reason}); is that the address of a broker? 'barnabas up' starts one"


def error_line(error: "KafkaError") -> str:
    """The line for a person: the message, then what helps, or the name of the error to look up."""
    from barnabas.wire.errors import ErrorCode

    message = error.message or error.code.name.lower().replace("_", " ")
    match error.code:
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return f"{message}; see 'barnabas topic list'"
        case ErrorCode.TOPIC_ALREADY_EXISTS:
            return f"{message.partition(':')[0]} exists already; see 'barnabas topic describe'"
        case _:
            return f"{message.rstrip('.')} ({error.code.name})"


def parse_assignments(assignments: list[str], option: str) -> dict[str, str]:
    """NAME=VALUE of a repeatable option."""
    parsed = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise CommandFailed(f"{option} wants NAME=VALUE, not {assignment!r}")
        parsed[name.strip()] = value
    return parsed
