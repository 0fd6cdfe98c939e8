"""The `barnabas` command: puts the command groups together, and decides what a user sees when something goes wrong.

| what happened | what is seen | exit status |
|---|---|---|
| a mistake of the user, or an error that Barnabas raises on purpose | one line that says what to do | 1 |
| Ctrl-C | nothing | 130 |
| whoever read the output has gone | nothing | 1 |
| a bug | one line that names the file with the trace; with `--debug` the trace itself | 1 |

Each group is a module of its own that is imported here; what is slow to import is imported by the commands.
"""

import logging
import os
import sys
import tempfile
import traceback
from types import TracebackType
from typing import Annotated, Final

import typer

import barnabas
from barnabas.base.errors import BarnabasError
from barnabas.base.logs import LogFormat, configure_logging
from barnabas.cli import cluster, config, group, log, pipeline, topic
from barnabas.cli.consume import consume
from barnabas.cli.group_reset import reset
from barnabas.cli.group_watch import watch
from barnabas.cli.output import complain
from barnabas.cli.produce import produce
from barnabas.cli.up import up

INTERRUPTED: Final = 130

app = typer.Typer(
    name="barnabas",
    help="A commit log that speaks Apache Kafka's protocol and file format.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
group.app.command()(reset)
group.app.command()(watch)
app.command()(up)
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.add_typer(config.app, name="config")
app.add_typer(cluster.app, name="cluster")
app.add_typer(log.app, name="log")
app.add_typer(pipeline.app, name="pipeline")
app.command()(produce)
app.command()(consume)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"barnabas {barnabas.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the log and the trace of an unexpected error.")] = False,
) -> None:
    if debug:
        configure_logging(LogFormat.TEXT, logging.DEBUG, sys.stderr)
        sys.excepthook = sys.__excepthook__


def main() -> None:
    """The entry point of the `barnabas` script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs one command line; returns its exit status. What is not handled here is a bug, and `_report_bug` says so."""
    # Commands report what they do; the log is for whoever asks for it with --debug.
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
    sys.excepthook = _report_bug
    try:
        result = typer.main.get_command(app)(arguments or ["--help"], prog_name="barnabas", standalone_mode=False)
    except typer.TyperException as error:
        complain(_usage_line(error))
        return 1
    except BarnabasError as error:
        complain(str(error))
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    return result if isinstance(result, int) else 0


def _usage_line(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    command = "barnabas" if context is None else context.command_path
    message = error.format_message()
    see = f"see `{command} --help`"
    return f"{message} {see.capitalize()}" if message.endswith("?") else f"{message.rstrip('.')}; {see}"


def _report_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The last resort, called by Python itself: a stack trace goes to a file, not to the user."""
    if issubclass(kind, KeyboardInterrupt):
        return
    descriptor, path = tempfile.mkstemp(prefix="barnabas-", suffix=".trace", text=True)
    with os.fdopen(descriptor, "w") as file:
        traceback.print_exception(kind, error, trace, file=file)
    complain(f"this is a bug: {kind.__name__}: {error} (the trace is in {path}; please report it)")


if __name__ == "__main__":
    main()
