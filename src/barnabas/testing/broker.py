"""A broker that a test owns, in a thread of its own with an event loop of its own.

So it serves whatever the test does meanwhile: a client that blocks, a library with its own loop, a test that is a
coroutine. It can be used with `with` and with `async with`.

```
new ──start──▶ running ──stop, kill──▶ stopped ──start──▶ running …        the port and the data stay
                  └───────────── close, end of `with` ──────▶ closed       a temporary directory is removed
```

A start that fails leaves nothing behind: no thread, no open file or port, no directory that it made.

Nothing is synced to the disk and the cluster's metadata is in memory, kept by this object across restarts. A stop is
what the broker does on SIGTERM; a kill is what the next start finds after SIGKILL: written records are there, answers
on their way are lost, and the logs are recovered.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine, Mapping
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from barnabas.base.clock import Clock, SystemClock
from barnabas.base.machine import boot_id
from barnabas.broker import app
from barnabas.broker.parts import BrokerParts
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.table import MemoryTable
from barnabas.storage.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINTS
from barnabas.testing.contents import NO_SETTINGS, Contents
from barnabas.testing.faults import Fault, Faults
from barnabas.testing.files import UnsyncedFileSystem
from barnabas.testing.loop_thread import LoopThread
from barnabas.testing.running import Running
from barnabas.testing.values import Setting, setting_texts
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode

_Result = TypeVar("_Result")

_HOST: Final = "127.0.0.1"
_TEST_SETTINGS: Final = {
    "log.initial.task.delay.ms": "0",
    "background.threads": "4",
    "network.awake.us": "0",  # in a test's own process it would only keep the interpreter from the test
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
}


class Broker(Contents):
    """`settings` are Kafka's names with values as texts, numbers or truth values. With a `clock` the test decides what
    time it is."""

    def __init__(
        self,
        settings: Mapping[str, Setting] = NO_SETTINGS,
        *,
        data_directory: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(SystemClock() if clock is None else clock)
        self._settings = setting_texts(settings)
        self._given_directory = None if data_directory is None else Path(data_directory)
        self._temporary_directory: Path | None = None
        self._metadata = MemoryTable()
        self._faults = Faults()
        self._port = 0
        self._running: Running | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    # -- running -------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The address for clients, `127.0.0.1:PORT`. It stays the same over restarts."""
        assert self._port, "the broker was never started"
        return f"{_HOST}:{self._port}"

    @property
    def is_running(self) -> bool:
        return self._running is not None

    @property
    def data_directory(self) -> Path:
        if self._given_directory is not None:
            return self._given_directory
        if self._temporary_directory is None:
            self._temporary_directory = Path(tempfile.mkdtemp(prefix="barnabas-test-"))
        return self._temporary_directory

    def start(self) -> None:
        """Returns when clients are served."""
        assert self._running is None, "the broker is already running"
        directory = self._given_directory or self._temporary_directory
        is_new = directory is None or not directory.exists()
        try:
            self._running = self._begin()
        except BaseException:
            if is_new:
                shutil.rmtree(self.data_directory, ignore_errors=True)
                self._temporary_directory = None
            raise

    def _begin(self) -> Running:
        texts = {
            **_TEST_SETTINGS,
            "listeners": f"PLAINTEXT://{_HOST}:{self._port}",
            "log.dirs": str(self.data_directory),
            **self._settings,
            **self._identity(),
        }
        broker = app.Broker(BrokerSettings(texts), self._make_parts())
        home = self._enter_home()
        try:
            running = Running(home, broker, self._faults)
            self._port = running.start()
            return running
        except BaseException:
            self._leave_home(home)
            raise

    def stop(self) -> None:
        """A clean stop: requests are answered, logs flushed and marked. `start` goes on with the same data."""
        if self._running is not None:
            running, self._running = self._running, None
            try:
                running.stop()
            finally:
                self._leave_home(running.home)

    def kill(self) -> None:
        """A stop as by SIGKILL: connections end at once, and the next start has logs to recover."""
        running = self._require_running()
        checkpoint = self.data_directory / RECOVERY_POINTS
        recovery_points = checkpoint.read_bytes() if checkpoint.exists() else None
        running.drop_connections()
        self.stop()
        (self.data_directory / CLEAN_SHUTDOWN).unlink(missing_ok=True)
        if recovery_points is None:
            checkpoint.unlink(missing_ok=True)
        else:
            checkpoint.write_bytes(recovery_points)

    def restart(self) -> None:
        """A clean stop and a start on the same port, with the same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops for good, and removes the data unless the directory was given."""
        try:
            self.stop()
        finally:
            directory, self._temporary_directory = self._temporary_directory, None
            if directory is not None:
                shutil.rmtree(directory, ignore_errors=True)

    # -- for its parts -------------------------------------------------------------------------------------------

    def _enter_home(self) -> LoopThread:
        """Where it runs from its start to its stop."""
        return LoopThread()

    def _leave_home(self, home: LoopThread) -> None:
        home.end()

    def _make_parts(self) -> BrokerParts:
        return BrokerParts(
            UnsyncedFileSystem(), self._clock, Random(), metadata_table=self._metadata, boot_id=boot_id()
        )

    def _identity(self) -> Mapping[str, str]:
        """Settings that say which broker it is."""
        return {}

    def _require_running(self) -> Running:
        assert self._running is not None, "the broker is not running"
        self._running.check()
        return self._running

    def _members(self) -> list[app.Broker]:
        return self._holders()

    def _holders(self) -> list[app.Broker]:
        return [self._require_running().broker]

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return self._require_running().home.run(work)

    # -- faults --------------------------------------------------------------------------------------------------

    def fail(self, api: ApiKey, error: ErrorCode, *, times: int | None = 1) -> Fault:
        """Answers the next requests of an API with an error, without doing what they ask for."""
        return self._faults.fail(api, error, times)

    def drop(self, api: ApiKey | None = None, *, times: int | None = 1) -> Fault:
        """Closes the connection on which such a request comes, instead of doing what it asks for."""
        return self._faults.drop(api, times)

    def lose_answers(self, api: ApiKey | None = None, *, times: int | None = 1) -> Fault:
        """Does what such a request asks for, and closes the connection instead of answering."""
        return self._faults.lose_answers(api, times)

    def delay(self, seconds: float, api: ApiKey | None = None, *, times: int | None = 1) -> Fault:
        """Lets such requests wait before they are worked on."""
        return self._faults.delay(api, seconds, times)

    def clear_faults(self) -> None:
        self._faults.clear()

    def drop_connections(self) -> None:
        """Closes every connection now; clients may connect again."""
        self._require_running().drop_connections()
