"""One broker of a local cluster as a process of its own.

It writes one line to standard output, when it is ready; everything else is its log, on standard error. It has a session
of its own, so that Ctrl-C is for the command that started it. When that command dies, it stops.
"""

import asyncio
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from barnabas.cli.death_watch import DeathWatch
from barnabas.cli.local_cluster.cluster_directory import LocalBroker

PROGRAM: Final = (sys.executable, "-m", "barnabas.cli.main")
_LINE_BYTES_MAX: Final = 1 << 20
_LAST_LINES: Final = 5
_STOP_SECONDS_MAX: Final = 60.0


class BrokerChild:
    """May be started again when it has ended."""

    def __init__(
        self,
        broker: LocalBroker,
        options: Sequence[str],
        on_ready: Callable[["BrokerChild"], None],
        on_line: Callable[["BrokerChild", str], None],
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.broker = broker
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self.was_ready = False
        """Since its last start."""
        self._command = [*program, "broker", "--config", str(broker.properties_file), *options]
        self._on_ready = on_ready
        self._on_line = on_line
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        assert self._process is None, "it runs already"
        self.was_ready = False
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES_MAX,
            start_new_session=True,
        )
        self._death_watch = DeathWatch(self._process.pid)

    async def wait_ended(self) -> int:
        """Hands on what it says until it ends; its status, negative for a signal."""
        process = self._process
        assert process is not None, "it was started"
        assert process.stdout is not None
        assert process.stderr is not None
        await asyncio.gather(self._read_ready(process.stdout), self._read_log(process.stderr))
        status = await process.wait()
        self._death_watch.end()
        self._process = None
        return status

    def ask_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    async def stop(self, ended: "asyncio.Future[int]") -> None:
        """Waits for `ended`, which is its `wait_ended`; kills it when that takes too long."""
        self.ask_to_stop()
        done, _ = await asyncio.wait([ended], timeout=_STOP_SECONDS_MAX)
        if not done:
            self.kill()
            await asyncio.wait([ended])

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _read_ready(self, stream: asyncio.StreamReader) -> None:
        while await _line(stream) is not None:
            self.was_ready = True
            self._on_ready(self)

    async def _read_log(self, stream: asyncio.StreamReader) -> None:
        while (line := await _line(stream)) is not None:
            self.last_lines.append(line)
            self._on_line(self, line)


async def _line(stream: asyncio.StreamReader) -> str | None:
    """None at the end."""
    try:
        line = await stream.readline()
    except ValueError:
        return "(a line that is too long to be shown)"
    return line.decode("utf-8", "replace").rstrip() if line else None


def how_it_ended(status: int) -> str:
    """In words: 'was killed by SIGKILL'."""
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}" if status else "stopped"
