"""One broker in the foreground, until Ctrl-C or SIGTERM.

What a person reads goes to standard output, the log to standard error. The first signal stops the broker in order; a
second one ends the process at once.
"""

import asyncio
import errno
import gc
import logging
import signal
import sys
from typing import TYPE_CHECKING, Final

import barnabas
from barnabas.base.errors import BarnabasError
from barnabas.base.logs import LogFormat, LogLevel, configure_logging, fields
from barnabas.cli.compiled import form_of, missing_modules
from barnabas.cli.output import human_bytes, plural, say
from barnabas.cli.remote import DEFAULT_BOOTSTRAP, CommandFailed

if TYPE_CHECKING:
    from barnabas.base.clock import Clock
    from barnabas.broker.app import Broker
    from barnabas.broker.settings import BrokerSettings
    from barnabas.storage.directories.opening import OpeningProgress

logger = logging.getLogger(__name__)

_COLLECTOR_THRESHOLDS: Final = (20_000, 250, 100)
"""A pass over what is new holds the event loop: the smaller the first, the shorter it is, mostly."""

_PROGRESS_SECONDS: Final = 1.0


def start_log(log_format: LogFormat, log_level: LogLevel) -> None:
    """The log of the process, on standard error."""
    is_debugged = logging.getLogger().level == logging.DEBUG  # by `barnabas --debug`
    configure_logging(log_format, logging.DEBUG if is_debugged else log_level.number, sys.stderr)


def run_broker(settings: "BrokerSettings", log_format: LogFormat) -> None:
    """Returns when it was stopped; `CommandFailed` when it cannot start, or cannot go on."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, log_format))


async def _serve(settings: "BrokerSettings", log_format: LogFormat) -> None:
    from barnabas.base.clock import SystemClock
    from barnabas.broker.app import Broker
    from barnabas.net.errors import ListenFailed

    _warn_of_slowness()
    stopping = _stop_on_signals()
    broker = Broker(settings, on_progress=RecoveryProgress(SystemClock()))
    try:
        async with broker:
            spare_the_collector()
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


def spare_the_collector() -> None:
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
        say("\n".join(what_to_try(broker.bootstrap)))
    sys.stdout.flush()


def what_to_try(bootstrap: str) -> list[str]:
    """Lines for a person who has just started a broker."""
    where = "" if bootstrap == DEFAULT_BOOTSTRAP else f" -b {bootstrap}"
    return [
        "Try in another terminal:",
        f"  barnabas topic create{where} orders",
        f"  echo 'two coffees' | barnabas produce{where} orders",
        f"  barnabas consume{where} orders --from beginning",
    ]


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
