"""One life of a test's broker on an event loop: from its start to its stop, or to the bug that ended it."""

import asyncio
import concurrent.futures

from barnabas.broker import app
from barnabas.testing.faults import Faults
from barnabas.testing.loop_thread import LoopThread


class BrokerFailed(Exception):  # noqa: N818 - named as the fact that it is
    """The broker stopped by itself; the cause says why."""


class Running:
    """Its methods are for the threads of the test."""

    def __init__(self, home: LoopThread, broker: app.Broker, faults: Faults) -> None:
        self.home = home
        self.broker = broker
        self._faults = faults
        self._stop = asyncio.Event()
        self._started: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._failure: BaseException | None = None
        self._life: concurrent.futures.Future[None] | None = None

    def start(self) -> int:
        """Returns the port that it serves on."""
        try:
            self._life = self.home.begin(self._live())
            return self._started.result()
        except BaseException:
            self._end()  # the broker may well start when it is this thread that was interrupted
            raise

    def stop(self) -> None:
        self._end()
        self.check()

    def drop_connections(self) -> None:
        async def drop() -> None:
            self.broker.drop_connections()

        self.home.run(drop())

    def check(self) -> None:
        """Raises when the broker has stopped by itself."""
        if self._failure is not None:
            raise BrokerFailed("the broker stopped by itself") from self._failure

    def _end(self) -> None:
        async def end() -> None:
            self._stop.set()

        if self._life is not None:
            self.home.run(end())
            self._life.result()

    async def _live(self) -> None:
        try:
            await self._serve()
        except BaseException as error:  # noqa: BLE001 - the thread of the test raises it
            if self._started.done():
                self._failure = error
            else:
                self._started.set_exception(error)

    async def _serve(self) -> None:
        async with self.broker:
            self._faults.attach(self.broker.dispatcher)
            self._started.set_result(self.broker.listeners[0].port)
            stop = asyncio.ensure_future(self._stop.wait())
            failure = asyncio.ensure_future(self.broker.wait_stopped())
            await asyncio.wait([stop, failure], return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            if failure.done():
                failure.result()
            failure.cancel()
