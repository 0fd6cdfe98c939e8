"""A broker that a test owns, in a thread of its own with an event loop of its own.

So it serves whatever the test does meanwhile: a client that blocks, a library with its own loop, a test that is a
coroutine. It can be used with `with` and with `async with`; the methods are the same, and each of them waits a few
milliseconds at most, except `records` with a `count` and `wait_for_group`: a coroutine calls these two through
`asyncio.to_thread`.

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
import concurrent.futures
import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import uvloop

from barnabas.base.clock import Clock, SystemClock
from barnabas.base.ids import Offset, TopicPartition
from barnabas.broker import app
from barnabas.broker.parts import BrokerParts
from barnabas.broker.settings import BrokerSettings
from barnabas.groups.transitions import GroupState
from barnabas.metadata.table import MemoryTable
from barnabas.storage.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINTS
from barnabas.testing import groups, topics
from barnabas.testing.faults import Fault, Faults
from barnabas.testing.files import UnsyncedFileSystem
from barnabas.testing.groups import GroupCondition, ObservedGroup
from barnabas.testing.records import StoredRecord, wait_for_records
from barnabas.testing.values import Record, Setting, build_batch, setting_texts
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
_NO_SETTINGS: Final[Mapping[str, Setting]] = {}


class BrokerFailed(Exception):  # noqa: N818 - named as the fact that it is
    """The broker stopped by itself; the cause says why."""


class Broker:
    """`settings` are Kafka's names with values as texts, numbers or truth values. With a `clock` the test decides what
    time it is."""

    def __init__(
        self,
        settings: Mapping[str, Setting] = _NO_SETTINGS,
        *,
        data_directory: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = setting_texts(settings)
        self._given_directory = None if data_directory is None else Path(data_directory)
        self._temporary_directory: Path | None = None
        self._clock = SystemClock() if clock is None else clock
        self._metadata = MemoryTable()
        self._faults = Faults()
        self._port = 0
        self._running: _Running | None = None

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
            texts = {
                **_TEST_SETTINGS,
                "listeners": f"PLAINTEXT://{_HOST}:{self._port}",
                "log.dirs": str(self.data_directory),
                **self._settings,
            }
            parts = BrokerParts(UnsyncedFileSystem(), self._clock, Random(), metadata_table=self._metadata)
            running = _Running(app.Broker(BrokerSettings(texts), parts), self._faults)
            self._port = running.start()
        except BaseException:
            if is_new:
                shutil.rmtree(self.data_directory, ignore_errors=True)
                self._temporary_directory = None
            raise
        self._running = running

    def stop(self) -> None:
        """A clean stop: requests are answered, logs flushed and marked. `start` goes on with the same data."""
        if self._running is not None:
            running, self._running = self._running, None
            running.stop()

    def kill(self) -> None:
        """A stop as by SIGKILL: connections end at once, and the next start has logs to recover."""
        running = self._require_running()
        checkpoint = self.data_directory / RECOVERY_POINTS
        recovery_points = checkpoint.read_bytes() if checkpoint.exists() else None
        running.loop.call_soon_threadsafe(running.broker.drop_connections)
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

    def _require_running(self) -> "_Running":
        assert self._running is not None, "the broker is not running"
        self._running.check()
        return self._running

    # -- topics --------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, Setting] = _NO_SETTINGS) -> None:
        """Returns when the topic can be used. KafkaError, or InvalidSetting, when it cannot be made."""
        self._run(topics.create_topic(self._require_running().broker, name, partitions, setting_texts(configs)))

    def delete_topic(self, name: str) -> None:
        self._run(topics.delete_topics(self._require_running().broker, [name]))

    def delete_all_topics(self) -> None:
        self._run(topics.delete_topics(self._require_running().broker, self.topics()))

    def topics(self) -> list[str]:
        """The names of all topics."""
        return sorted(self._require_running().broker.services.image.topics)

    # -- records -------------------------------------------------------------------------------------------------

    def records(
        self, topic: str, count: int = 0, *, partition: int | None = None, timeout_seconds: float = 10.0
    ) -> list[StoredRecord]:
        """What is stored in a topic, by partition and offset; with a `count` it waits until there are enough.

        TimeoutError, with how many there were, when there are not enough in time. Without a `count` a topic that does
        not exist has no records.
        """
        broker = self._require_running().broker
        if not count and topic not in broker.services.image.topics:
            return []
        return self._run(wait_for_records(broker.replicas, topic, partition, count, timeout_seconds))

    def append(
        self,
        topic: str,
        records: Iterable[bytes | Record | StoredRecord | None],
        *,
        key: bytes | None = None,
        partition: int = 0,
        timestamp_ms: int | None = None,
        create: bool = False,
    ) -> Offset:
        """Stores records as one batch, so that a test has something to consume; returns the offset of the first.

        Each is a value, or a `Record` with a key, headers and a timestamp of its own; `key` and `timestamp_ms` are for
        those without. What `records` returned can be appended again. KafkaError when there is no such topic, unless
        it may `create` it.
        """
        batch = build_batch(records, key, self._clock.now_ms() if timestamp_ms is None else timestamp_ms)
        return self._run(topics.append(self._require_running().broker, topic, partition, batch, creates=create))

    # -- groups --------------------------------------------------------------------------------------------------

    def committed(self, group: str) -> dict[TopicPartition, Offset]:
        """What a consumer group has committed: the offset that it reads next, by topic and partition."""
        return dict(self._run(groups.observe_group(self._require_running().broker, group)).committed)

    def wait_for_group(
        self,
        group: str,
        *,
        state: str | None = None,
        members: int | None = None,
        lag: int | None = None,
        timeout_seconds: float = 10.0,
    ) -> ObservedGroup:
        """Waits until a consumer group is in a state, has a number of members, or a lag of at most `lag` records.

        All that are given must hold at once; without any it waits for a stable group. TimeoutError says what the group
        was instead.
        """
        if state is None and members is None and lag is None:
            state = GroupState.STABLE.value
        condition = GroupCondition(state, members, lag)
        broker = self._require_running().broker
        return self._run(groups.wait_for_group(broker, group, condition, timeout_seconds))

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
        running = self._require_running()

        async def drop() -> None:
            running.broker.drop_connections()

        self._run(drop())

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._require_running().loop).result()


class _Running:
    """The thread, its loop, and the broker that runs there."""

    def __init__(self, broker: app.Broker, faults: Faults) -> None:
        self.broker = broker
        self._faults = faults
        self._stop = asyncio.Event()
        self._started: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._failure: BaseException | None = None
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="barnabas-test-broker", daemon=True)

    def start(self) -> int:
        """Returns the port that it serves on."""
        try:
            self._thread.start()
            return self._started.result()
        except BaseException:
            self._end()  # the broker may well start when it is this thread that was interrupted
            raise

    def stop(self) -> None:
        self._end()
        self.check()

    def _end(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed already: it has ended by itself
            self.loop.call_soon_threadsafe(self._stop.set)
        if self._thread.ident is not None:
            self._thread.join()

    def check(self) -> None:
        """Raises when the broker has stopped by itself."""
        if self._failure is not None:
            raise BrokerFailed("the broker stopped by itself") from self._failure

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.run(self._run())
        except BaseException as error:  # noqa: BLE001 - the thread of the test raises it
            if self._started.done():
                self._failure = error
            else:
                self._started.set_exception(error)

    async def _run(self) -> None:
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
