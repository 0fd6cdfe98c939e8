"""Keeps the brokers of a local cluster, and its ZooKeeper server, running until a signal comes.

A broker that dies is said; its session is ended at once, so that its cluster need not wait for the timeout, and it is
started again (`restarts` decides when). A crash loop of one process stops the whole cluster. The first signal stops the
brokers in order and waits for them; a second one kills them.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError
from barnabas.cli.local_cluster.broker_child import PROGRAM, BrokerChild, how_it_ended
from barnabas.cli.local_cluster.cluster_directory import LocalBroker, bootstrap_of
from barnabas.cli.local_cluster.cluster_screen import BrokerRow, ClusterScreen
from barnabas.cli.local_cluster.restarts import DEATHS_MAX, Deaths
from barnabas.cli.remote import CommandFailed

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_SECONDS: Final = 0.5

WhenReady = Callable[[], Awaitable[str | None]]
"""Is done once, when all brokers are ready; with what to say about it."""

Retire = Callable[[LocalBroker], Awaitable[bool]]
"""Ends the session of a broker that is dead; whether there was one."""


class Server(Protocol):
    """The ZooKeeper server of the cluster."""

    @property
    def is_running(self) -> bool: ...

    @property
    def last_words(self) -> str: ...

    def start(self) -> None: ...


class Supervisor:
    def __init__(
        self,
        brokers: Sequence[LocalBroker],
        options: Sequence[str],
        retire: Retire,
        screen: ClusterScreen,
        clock: Clock,
        ready_text: str,
        *,
        server: Server | None = None,
        when_ready: WhenReady | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        """`options` are for each broker's command line; `ready_text` is said when all of them are ready."""
        self._brokers = brokers
        self._children = [BrokerChild(one, options, self._on_ready, self._on_line, program) for one in brokers]
        self._states = {one.broker_id: "" for one in brokers}
        self._unready = set(self._states)
        self._retire = retire
        self._screen = screen
        self._clock = clock
        self._ready_text = ready_text
        self._server = server
        self._when_ready = when_ready
        self._all_ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._reason: str | None = None

    async def run(self) -> None:
        """Until a signal comes; `CommandFailed` with the reason when a process cannot be kept running."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        try:
            async with asyncio.TaskGroup() as tasks:
                for child in self._children:
                    tasks.create_task(self._keep(child))
                if self._server is not None:
                    tasks.create_task(self._keep_server(self._server))
                if self._when_ready is not None:
                    tasks.create_task(self._do_when_ready(self._when_ready))
        finally:
            for child in self._children:  # none runs, unless there was a bug
                child.kill()
            for number in SIGNALS:
                loop.remove_signal_handler(number)
        if self._reason is not None:
            raise CommandFailed(self._reason)

    def _on_signal(self) -> None:
        if self._stopping.is_set():
            self._note("killing the brokers")
            for child in self._children:
                child.kill()
        self._stopping.set()

    async def _keep(self, child: BrokerChild) -> None:
        """Runs a broker until the cluster stops."""
        deaths = Deaths()
        while not self._stopping.is_set():
            await child.start()
            self._show(child, "starting")
            ended = asyncio.ensure_future(child.wait_ended())
            stopped = asyncio.ensure_future(self._stopping.wait())
            await asyncio.wait([ended, stopped], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if self._stopping.is_set():
                self._show(child, "stopping")
                await child.stop(ended)
                break
            deaths = deaths.and_at(self._clock.monotonic(), was_ready=child.was_ready)
            await self._after_death(child, how_it_ended(ended.result()), deaths)
        self._show(child, "stopped")

    async def _after_death(self, child: BrokerChild, how: str, deaths: Deaths) -> None:
        """Returns when it is time to start it again."""
        name = child.broker.name
        self._show(child, how)
        session = await self._end_session(child.broker)
        if deaths.is_crash_loop:
            said = "".join(f"\n  {line}" for line in child.last_lines) or " nothing"
            self._give_up(f"{name} {how}, for the {DEATHS_MAX}th time; the last that it said:{said}")
            return
        self._note(f"{name} {how}{session}; it is started again{_after_text(deaths.pause_seconds)}")
        await self._pause(deaths.pause_seconds)

    async def _end_session(self, broker: LocalBroker) -> str:
        """What to say about it."""
        try:
            return "; its session is ended" if await self._retire(broker) else ""
        except BarnabasError as error:
            return f"; its session ends by its timeout ({error})"

    async def _keep_server(self, server: Server) -> None:
        deaths = Deaths()
        while not self._stopping.is_set():
            await self._pause(_LOOK_SECONDS)
            if server.is_running or self._stopping.is_set():
                continue
            deaths = deaths.and_at(self._clock.monotonic(), was_ready=True)
            if deaths.is_crash_loop:
                self._give_up(f"ZooKeeper ended, for the {DEATHS_MAX}th time: {server.last_words}")
                return
            after = _after_text(deaths.pause_seconds)
            self._note(f"ZooKeeper ended: {server.last_words}; it is started again{after}")
            await self._pause(deaths.pause_seconds)
            if not self._stopping.is_set():
                server.start()

    async def _do_when_ready(self, work: WhenReady) -> None:
        """Given up when the cluster stops before."""

        async def wait_and_do() -> str | None:
            await self._all_ready.wait()
            return await work()

        doing = asyncio.ensure_future(wait_and_do())
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([doing, stopped], return_when=asyncio.FIRST_COMPLETED)
            if doing.done() and (told := doing.result()):
                self._note(told)
        finally:
            for one in (doing, stopped):
                one.cancel()
            await asyncio.wait([doing, stopped])

    def _give_up(self, reason: str) -> None:
        self._reason = reason
        self._stopping.set()

    async def _pause(self, seconds: float) -> None:
        """Shorter, when the cluster stops."""
        stopped = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([stopped], timeout=seconds)
        stopped.cancel()

    # What is seen. When nobody can read any more, the brokers go on.

    def _note(self, text: str) -> None:
        with suppress(OSError):
            self._screen.note(text)

    def _on_line(self, child: BrokerChild, line: str) -> None:
        with suppress(OSError):
            self._screen.line(child.broker.name, line)

    def _on_ready(self, child: BrokerChild) -> None:
        self._show(child, "ready")
        if not self._unready:
            self._note(f"{child.broker.name} is ready again")
            return
        self._unready.discard(child.broker.broker_id)
        if not self._unready:
            with suppress(OSError):
                self._screen.ready(self._ready_text, bootstrap_of(self._brokers), self._rows())
            self._all_ready.set()

    def _show(self, child: BrokerChild, state: str) -> None:
        self._states[child.broker.broker_id] = state
        with suppress(OSError):
            self._screen.show(self._rows())

    def _rows(self) -> list[BrokerRow]:
        return [
            BrokerRow(
                child.broker.broker_id,
                child.broker.address,
                child.broker.metrics_port,
                child.pid,
                self._states[child.broker.broker_id],
            )
            for child in self._children
        ]


def _after_text(seconds: float) -> str:
    return f" in {seconds:g} s" if seconds else ""
