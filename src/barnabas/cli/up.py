"""`barnabas up`: a broker in the foreground, until Ctrl-C or SIGTERM.

Settings come, the later over the earlier, from the defaults of this command (127.0.0.1:9092, `./barnabas-data`, and for
groups what suits one broker), the `--config` file, `--set`, and `--listen`, `--data-dir` and `--metrics-listen`. A file
may be one of Kafka's: what it has that Barnabas does not know is said and left out. `--set` is for who knows what they
want: an unknown name is refused.

What a person reads goes to standard output, the log to standard error. The first signal stops the broker in order; a
second one ends the process at once.
"""

import asyncio
import errno
import gc
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

import barnabas
from barnabas.base.addresses import bracket_hint
from barnabas.base.errors import BarnabasError, InvalidSetting
from barnabas.base.logs import LogFormat, LogLevel, configure_logging, fields
from barnabas.cli import completion
from barnabas.cli.compiled import form_of, missing_modules
from barnabas.cli.output import human_bytes, plural, say
from barnabas.cli.remote import DEFAULT_BOOTSTRAP, CommandFailed, parse_assignments

if TYPE_CHECKING:
    from barnabas.base.clock import Clock
    from barnabas.broker.app import Broker
    from barnabas.broker.settings import BrokerSettings
    from barnabas.storage.directories.opening import OpeningProgress

logger = logging.getLogger(__name__)

_COLLECTOR_THRESHOLDS: Final = (20_000, 250, 100)
"""A pass over what is new holds the event loop: the smaller the first, the shorter it is, mostly."""

_DATA_DIRECTORY: Final = "barnabas-data"
_ALONE: Final = {"offsets.topic.replication.factor": "1", "group.initial.rebalance.delay.ms": "0"}
"""What Kafka's own example configuration for one broker says, too."""
_PROGRESS_SECONDS: Final = 1.0
_PORT_MAX: Final = 65_535


def up(
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"Where to serve clients; port 0 picks a free one. [default: {DEFAULT_BOOTSTRAP}]",
            show_default=False,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help=f"The data directory. [default: ./{_DATA_DIRECTORY}]", show_default=False),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting of the broker; may be repeated.",
            autocompletion=completion.broker_assignments,
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings in the format of Kafka's server.properties.")
    ] = None,
    metrics_listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where to serve /metrics and /healthz over HTTP.", show_default=False),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="Like --metrics-listen, with the host of --listen.",
            min=0,
            max=_PORT_MAX,
            show_default=False,
        ),
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="The format of the log.")] = LogFormat.TEXT,
    log_level: Annotated[
        LogLevel, typer.Option(help="The lowest level that is logged.", case_sensitive=False)
    ] = LogLevel.INFO,
) -> None:
    """Run a broker until Ctrl-C.

    Example: barnabas up --data-dir /var/lib/barnabas --set num.partitions=3
    """
    is_debugged = logging.getLogger().level == logging.DEBUG  # by `barnabas --debug`
    configure_logging(log_format, logging.DEBUG if is_debugged else log_level.number, sys.stderr)
    given = parse_assignments(settings or [], "--set")
    broker_settings = with_metrics(make_settings(listen, data_dir, given, config), metrics_listen, metrics_port)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(broker_settings, log_format))


def make_settings(
    listen: str | None, data_dir: Path | None, given: Mapping[str, str], config: Path | None
) -> "BrokerSettings":
    """All sources put together and checked; what has no effect is said in the log."""
    from barnabas.broker.settings import BrokerSettings, recognise

    texts = {"listeners": _listener(DEFAULT_BOOTSTRAP), **_ALONE}
    if config is not None:
        recognised = recognise(_read_properties(config))
        for note in recognised.notes:
            logger.warning("%s: %s", config, note)
        texts |= recognised.texts
    texts |= given
    if listen is not None:
        texts["listeners"] = _listener(listen)
        if "advertised.listeners" not in given and texts.pop("advertised.listeners", None) is not None:
            logger.warning("%s: advertised.listeners has no effect: --listen takes its place", config)
    if data_dir is not None:
        texts.pop("log.dir", None)
        texts["log.dirs"] = str(data_dir.absolute())
    elif "log.dirs" not in texts and "log.dir" not in texts:
        texts["log.dirs"] = os.path.abspath(_DATA_DIRECTORY)
    return BrokerSettings(texts)


def with_metrics(settings: "BrokerSettings", metrics_listen: str | None, metrics_port: int | None) -> "BrokerSettings":
    """The settings, with the address that the options give for the metrics."""
    from barnabas.broker.setting_table import HostAndPort
    from barnabas.broker.settings import BrokerSettings

    if metrics_listen is None and metrics_port is None:
        return settings
    if metrics_listen is not None and metrics_port is not None:
        raise InvalidSetting(
            "--metrics-listen and --metrics-port both set the address of the metrics; give one of them"
        )
    if metrics_listen is None:
        host = settings.config.listeners[0].host
        metrics_listen = f"[{host}]:{metrics_port}" if ":" in host else f"{host}:{metrics_port}"
    elif HostAndPort.split(metrics_listen) is None:
        raise InvalidSetting(f"--metrics-listen {metrics_listen} is not allowed; it must be HOST:PORT")
    return BrokerSettings({**settings.texts, "metrics.listen": metrics_listen})


def _listener(address: str) -> str:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > _PORT_MAX or bracket_hint(address):
        raise InvalidSetting(f"--listen {address} is not allowed; it must be HOST:PORT{bracket_hint(address)}")
    return f"PLAINTEXT://{host}:{port}"


def _read_properties(path: Path) -> dict[str, str]:
    from barnabas.base.properties import InvalidProperties, parse_properties

    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CommandFailed(f"cannot read {path}: it is not UTF-8 text") from None
    except InvalidProperties as error:
        raise CommandFailed(f"{path}: {error}") from error


async def _serve(settings: "BrokerSettings", log_format: LogFormat) -> None:
    from barnabas.base.clock import SystemClock
    from barnabas.broker.app import Broker
    from barnabas.net.errors import ListenFailed

    _warn_of_slowness()
    stopping = _stop_on_signals()
    broker = Broker(settings, on_progress=RecoveryProgress(SystemClock()))
    try:
        async with broker:
            _spare_the_collector()
            _announce(broker, log_format)
            await _until_stopped(broker, stopping)
            logger.info("stopping")
    except ListenFailed as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise CommandFailed(f"{error}; choose another port with --listen or --metrics-listen") from error
    logger.info("stopped")


def _warn_of_slowness() -> None:
    missing = missing_modules()
    if missing:
        logger.warning(
            "this installation of Barnabas is %s and several times slower than it could be; install a C compiler and "
            "the headers of this Python, then reinstall Barnabas (missing: %s)",
            form_of(missing),
            ", ".join(missing),
        )


def _stop_on_signals() -> asyncio.Event:
    """Set by the first signal. The second finds Python's own handlers again, and ends the process."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    return stopping


async def _until_stopped(broker: "Broker", stopping: asyncio.Event) -> None:
    """Until a signal comes; raises when the broker cannot go on."""
    signalled = asyncio.ensure_future(stopping.wait())
    failed = asyncio.ensure_future(broker.wait_stopped())
    await asyncio.wait([signalled, failed], return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    failed.cancel()
    failure = broker.failure
    if isinstance(failure, BarnabasError):
        raise failure
    if failure is not None:
        raise CommandFailed(
            f"the broker stopped because of a bug: {type(failure).__name__}: {failure} (the log above has the trace; "
            "please report it)"
        ) from failure


def _spare_the_collector() -> None:
    """Objects from the start live forever, and requests create few cycles: collecting less often saves a fifth of the
    time of a small request.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)


def _announce(broker: "Broker", log_format: LogFormat) -> None:
    """One line that it is ready, for JSON in the log. What to try next is for a person at a terminal."""
    directories = ", ".join(broker.settings.log_manager_config.log_dirs)
    missing = missing_modules()
    form = f" ({form_of(missing)}, slow)" if missing else ""
    ready = f"Barnabas {barnabas.__version__}{form} is ready on {broker.bootstrap}"
    metrics = "" if broker.metrics_port is None else f", metrics on port {broker.metrics_port}"
    if log_format is LogFormat.JSON:
        ids = fields(bootstrap=broker.bootstrap, data=directories, metrics_port=broker.metrics_port)
        logger.info("%s", ready, extra=ids)
        return
    is_terminal = sys.stdout.isatty()
    say(f"{ready}; data in {directories}{metrics}{'; Ctrl-C stops it.' if is_terminal else ''}")
    if is_terminal:
        where = "" if broker.bootstrap == DEFAULT_BOOTSTRAP else f" -b {broker.bootstrap}"
        say("Try in another terminal:")
        say(f"  barnabas topic create{where} orders")
        say(f"  echo 'two coffees' | barnabas produce{where} orders")
        say(f"  barnabas consume{where} orders --from beginning")
    sys.stdout.flush()


class RecoveryProgress:
    """Says how far the logs are opened, once it has taken a while, and then again every second."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._next = clock.monotonic() + _PROGRESS_SECONDS

    def __call__(self, progress: "OpeningProgress") -> None:
        now = self._clock.monotonic()
        if now >= self._next:
            self._next = now + _PROGRESS_SECONDS
            logger.info(
                "opening the logs: %d of %s, %s checked",
                progress.logs_done,
                plural(progress.logs_total, "partition"),
                human_bytes(progress.checked_bytes),
            )
