"""The `barnabas` command: puts the command groups together, and decides what a user sees when something goes wrong.

| what happened | what is seen | exit status |
|---|---|---|
| a mistake of the user, or an error that Barnabas raises on purpose | one line that says what to do | 1 |
| Ctrl-C | nothing | 130 |
| the reader of the output has gone | nothing | 1 |
| a bug | one line that names the file with the trace; with `--debug` the trace itself | 1 |

Each command, or group of them, has its own module. Only the requested one is imported, and slow imports happen when it
runs: a user should not wait for what the command does not need.
"""

import logging
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib import import_module
from types import ModuleType, TracebackType
from typing import Annotated, Final

import typer

import barnabas
from barnabas.base.errors import BarnabasError
from barnabas.base.logs import LogFormat, configure_logging
from barnabas.cli.output import complain

INTERRUPTED: Final = 130
_STANDARD_ERROR: Final = 2
COMMANDS: Final = {
    "up": "up",
    "broker": "broker.broker_commands",
    "topic": "topic",
    "group": "group.group_commands",
    "config": "config",
    "cluster": "cluster.cluster_commands",
    "metadata": "metadata",
    "zookeeper": "zookeeper.zookeeper_commands",
    "log": "log.log_commands",
    "pipeline": "pipeline.pipeline_commands",
    "produce": "records.produce",
    "consume": "records.consume",
}
"""The module of each: with an `app`, which is a group of commands, or with a function of the command's name."""


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these of its commands."""
    app = typer.Typer(
        name="barnabas",
        help="A commit log that speaks Apache Kafka's protocol and file format.",
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    for name in names:
        module = _module_of(name)
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command()(getattr(module, name))
    return app


def _module_of(name: str) -> ModuleType:
    return import_module(f"barnabas.cli.{COMMANDS[name]}")


def _asked_for(arguments: Sequence[str]) -> Iterable[str]:
    """The one command that a command line names; all, where help or a suggestion may need them."""
    name = _command_name(arguments)
    return (name,) if name in COMMANDS else COMMANDS


def _completed_words() -> list[str]:
    """Of the command line that a shell wants completed; none when this is a command of its own."""
    from barnabas.cli import completion

    if completion.VARIABLE not in os.environ:
        return []
    completion.rejoin_words(os.environ)
    return completion.words(os.environ)


def _command_name(arguments: Sequence[str]) -> str | None:
    return next((argument for argument in arguments if not argument.startswith("-")), None)


def _or_help(arguments: list[str]) -> list[str]:
    """`barnabas` alone, and a group of commands alone, show what there is."""
    name = _command_name(arguments)
    is_group_alone = name in COMMANDS and arguments[-1] == name and hasattr(_module_of(name), "app")
    return [*arguments, "--help"] if is_group_alone or not arguments else arguments


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from barnabas.cli.compiled import form_of, missing_modules

        missing = missing_modules()
        python = ".".join(map(str, sys.version_info[:3]))
        typer.echo(f"barnabas {barnabas.__version__} ({form_of(missing)}, Python {python})")
        for name, reason in missing.items():
            typer.echo(f"not compiled: {name}: {reason}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print the log, and the traceback of an unexpected error.")
    ] = False,
) -> None:
    if debug:
        configure_logging(LogFormat.TEXT, logging.DEBUG, sys.stderr)
        sys.excepthook = sys.__excepthook__


def main() -> None:
    """The entry point of the `barnabas` script."""
    _occupy_standard_streams()
    sys.exit(run(sys.argv[1:]))


def _occupy_standard_streams() -> None:
    """A stream that the caller closed leaves its number to the next file or socket, which the event loop aborts at."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        pass
    os.close(descriptor)


def run(arguments: list[str]) -> int:
    """Runs one command line; returns its exit status. What is not handled here is a bug, and `_report_bug` says so."""
    # Commands report what they do; the log is shown only with --debug.
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
    sys.excepthook = _report_bug
    try:
        asked_for = _asked_for(_completed_words() or arguments)
        command = typer.main.get_command(make_app(asked_for))
        result = command(_or_help(arguments), prog_name="barnabas", standalone_mode=False)
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
    import tempfile  # only a bug report needs it

    descriptor, path = tempfile.mkstemp(prefix="barnabas-", suffix=".trace", text=True)
    with os.fdopen(descriptor, "w") as file:
        traceback.print_exception(kind, error, trace, file=file)
    complain(f"this is a bug: {kind.__name__}: {error} (the trace is in {path}; please report it)")


if __name__ == "__main__":
    main()
