"""Runs a pipeline: starts its queries, watches them, starts a failed one again, stops them after their batch.

```
starting ──▶ running ──failed──▶ waiting ──back-off over──▶ running …
                └── `stop` is set, or `--once` and all is read ──▶ stopping ──▶ done
```

Queries start a few at a time, each when the source of one before is up: Spark gives its Python process ten seconds for
that, and many at once take longer on few cores.

A query that fails starts again after 1 s, 2 s, 4 s … 60 s; a batch that works sets that back. With `once` the third
failure in a row is final, or the tenth where a Python process did not come up in time, as on a busy machine.

`stop` lets each query finish its batch: a file tells the sources to say that there is nothing new, and when a query
rests it is stopped. The sources commit what is done to the query's group, after every batch (`barnabas.spark.lag`); the
run only waits for the last commit before it stops a query.

One process runs a pipeline at a time: it holds a lock on the checkpoint's directory. A crash at any point leaves
Spark's checkpoint, from which the next run goes on; the lock goes with the process. Without its JVM a run cannot go on,
and ends with `SparkLost`.
"""

import fcntl
import json
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from barnabas.base.clock import Clock, SystemClock
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.cluster import ClusterOptions
from barnabas.client.group.group_offsets import committed_offsets
from barnabas.client.offsets import end_offsets
from barnabas.net.errors import NetworkFailed
from barnabas.pipelines.compile import Compiler, NotCompiled
from barnabas.pipelines.failures import failure_line, failure_place, is_worker_late
from barnabas.pipelines.metrics import PipelineMetrics
from barnabas.pipelines.pinned import drop_unfinished_batch
from barnabas.pipelines.pipeline_session import has_jvm_ended
from barnabas.pipelines.plans import (
    Plan,
    changes,
    has_progress,
    may_name_streams,
    query_plan,
    read_plan,
    write_plan,
)
from barnabas.pipelines.progress import QueryProgress, QueryView
from barnabas.pipelines.rules import SHUFFLE_PARTITIONS
from barnabas.pipelines.sinks import ShowRows, Starter
from barnabas.pipelines.spec import InvalidPipeline, Pipeline, Sink
from barnabas.pipelines.streams import ClusterStreams, register
from barnabas.spark.callbacks import ensure_callbacks
from barnabas.spark.worker_process import shared_client
from barnabas.wire.errors import KafkaError

logger = logging.getLogger(__name__)

LOCK_FILE: Final = "lock"
_LOOK_SECONDS: Final = 0.2
_SHOW_SECONDS: Final = 1.0
_BACK_OFF_SECONDS: Final = 1.0
_BACK_OFF_SECONDS_MAX: Final = 60.0
_STOP_SECONDS_MAX: Final = 600.0
_COMMIT_SECONDS_MAX: Final = 5.0
_ONCE_FAILURES_MAX: Final = 3
_WORKER_FAILURES_MAX: Final = 10
_STARTING_MAX: Final = max(1, (os.cpu_count() or 1) // 2)
_STARTING: Final = "Initializing"
"""How the status of a query begins while the Python process of its source comes up."""

ShowViews = Callable[[list[QueryView]], None]
Tell = Callable[[str], None]


class PipelineBusy(BarnabasError):  # noqa: N818 - named as the fact that it is
    """Another process runs this pipeline."""


class SparkLost(BarnabasError):  # noqa: N818 - named as the fact that it is
    """Spark's JVM has ended in the middle of a run."""


class QueryFailed(BarnabasError):  # noqa: N818 - named as the fact that it is
    """A query failed, and is not started again."""


@dataclass(frozen=True, slots=True)
class Display:
    """How a run speaks: the live view, a line about what happened, the rows of a console sink."""

    show: ShowViews
    tell: Tell
    show_rows: ShowRows


@dataclass(slots=True)
class _Running:
    """One query and its failures."""

    sink: Sink
    name: str
    progress: QueryProgress
    query: StreamingQuery | None = None
    failures: int = 0
    restarts: int = 0
    start_at: float = float("-inf")
    problem: str = ""
    is_done: bool = False
    has_begun: bool = False
    lags: dict[TopicPartition, int] = field(default_factory=dict)

    def view(self) -> QueryView:
        progress = self.progress
        state = "waiting" if self.failures else "starting"
        if self.is_done or self.query is not None:
            state = "done" if self.is_done else "running" if self.has_begun or progress.batch_id >= 0 else "starting"
        return QueryView(
            name=self.sink.name,
            state=state,
            batch_id=progress.batch_id,
            rows_per_second=progress.rows_per_second,
            lag=sum(self.lags.values()) if self.lags else None,
            batch_ms=progress.batch_ms,
            state_rows=progress.state_rows,
            state_bytes=progress.state_bytes,
            input_rows=progress.input_rows,
            late_rows=progress.late_rows,
            bad_rows=progress.bad_rows,
            restarts=self.restarts,
            problem=self.problem,
        )


class PipelineRun:
    """One run in this process; `run` returns when it is over."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        file: Path,
        display: Display,
        *,
        is_once: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._file = file
        self._display = display
        self._is_once = is_once
        self._clock = SystemClock() if clock is None else clock
        self._checkpoint = file.parent / pipeline.checkpoint
        self.metrics = PipelineMetrics(pipeline.name)
        self._running = [
            _Running(sink, pipeline.query_name(sink), QueryProgress(pipeline.query_name(sink)))
            for sink in pipeline.sinks
        ]
        self._plan = Plan(1)
        self._shown_at = float("-inf")

    def run(self, stop: threading.Event) -> list[QueryView]:
        """Until `stop` is set, or until everything is read with `once`. The last views."""
        try:
            self._run(stop)
        except (Py4JError, OSError) as error:
            if has_jvm_ended(self._spark):
                raise SparkLost(
                    "Spark's JVM has ended; start the pipeline again to continue where it stopped"
                ) from error
            raise
        return [running.view() for running in self._running]

    def _run(self, stop: threading.Event) -> None:
        register(self._spark)
        with _locked(self._checkpoint), tempfile.TemporaryDirectory(prefix="barnabas-run-") as scratch:
            stop_file = Path(scratch) / "stop"
            compiler = Compiler(
                self._spark,
                self._pipeline,
                self._file.parent,
                ClusterStreams(self._spark, self._pipeline, stop_file, self._checkpoint.resolve()),
            )
            starter = Starter(self._pipeline, self._file.parent, self._checkpoint, self._display.show_rows)
            self._pin_plan(compiler, starter)
            try:
                self._watch(compiler, starter, stop)
            finally:
                stop_file.touch()
                self._stop_all()
            self._look(is_last=True)

    # --- the plan -------------------------------------------------------------------------------------------------

    def _pin_plan(self, compiler: Compiler, starter: Starter) -> None:
        """Takes the checkpoint's number of shuffle partitions, and refuses what cannot go on."""
        before = read_plan(self._checkpoint)
        mistakes = []
        if before is not None:
            self._spark.conf.set(SHUFFLE_PARTITIONS, str(before.shuffle_partitions))
        plan = before or Plan(int(self._spark.conf.get(SHUFFLE_PARTITIONS) or "1"))
        new = Plan(plan.shuffle_partitions, queries=dict(plan.queries))
        for sink in self._pipeline.sinks:
            try:
                may_name = may_name_streams(self._checkpoint, sink, before)
                now = query_plan(self._pipeline, compiler.compile(sink, may_name_streams=may_name))
            except NotCompiled as error:
                mistakes.append(error.mistake)
                continue
            if sink.name in plan.queries and has_progress(self._checkpoint, sink):
                mistakes += changes(self._pipeline, sink, plan, now, self._checkpoint / sink.name)
            new.queries[sink.name] = now
        if mistakes:
            raise InvalidPipeline(str(self._file), mistakes)
        if before is not None:
            self._drop_unfinished_batches(before, new, starter)
        write_plan(self._checkpoint, new)
        self._plan = new

    def _drop_unfinished_batches(self, before: Plan, now: Plan, starter: Starter) -> None:
        """Where the file has changed how large a batch may be, one that never ended need not stay as it was."""
        for sink in self._pipeline.sinks:
            known = before.queries.get(sink.name)
            if known is None or known.limits() == now.queries[sink.name].limits():
                continue
            batch_id = drop_unfinished_batch(self._checkpoint / sink.name, partial(starter.is_committed, sink))
            if batch_id is not None:
                self._display.tell(f"sink '{sink.name}': batch {batch_id}, which was not finished, is planned again")

    # --- watching -------------------------------------------------------------------------------------------------

    def _watch(self, compiler: Compiler, starter: Starter, stop: threading.Event) -> None:
        while not stop.is_set():
            for running in self._running:
                self._attend(running, compiler, starter)
            self._look()
            if all(running.is_done for running in self._running):
                return
            stop.wait(_LOOK_SECONDS)

    def _attend(self, running: _Running, compiler: Compiler, starter: Starter) -> None:
        if running.is_done:
            return
        if running.query is None:
            if self._clock.monotonic() >= running.start_at and self._starting() < _STARTING_MAX:
                self._start(running, compiler, starter)
            return
        if running.query.isActive:
            return
        error = running.query.exception()
        self._take_reports(running)
        if error is not None:
            self._failed(running, error)
        elif self._is_once:
            running.is_done = True
        else:
            running.query = None  # somebody else stopped it; it is to run

    def _starting(self) -> int:
        """How many queries wait for the Python process of their source."""
        self._note_begun()
        return sum(
            running.query is not None and not running.has_begun and running.query.isActive for running in self._running
        )

    def _note_begun(self) -> None:
        for running in self._running:
            if running.query is not None and not running.has_begun and running.query.isActive:
                running.has_begun = not str(running.query.status["message"]).startswith(_STARTING)

    def _start(self, running: _Running, compiler: Compiler, starter: Starter) -> None:
        running.has_begun = False
        ensure_callbacks(self._spark)
        if running.failures:
            running.restarts += 1
        # Batches are counted on from the checkpoint, so reports of the new run follow those of the old.
        try:
            may_name = self._plan.queries[running.sink.name].is_named
            compiled = compiler.compile(running.sink, may_name_streams=may_name)
            running.query = starter.start(compiled, is_once=self._is_once)
        except (PySparkException, KafkaError, NetworkFailed) as error:
            self._failed(running, error)

    def _failed(self, running: _Running, error: Exception) -> None:
        running.query = None
        running.problem = f"{failure_place(error, self._pipeline, running.sink)}: {failure_line(error)}"
        seconds = min(_BACK_OFF_SECONDS * 2**running.failures, _BACK_OFF_SECONDS_MAX)
        running.failures += 1
        failures_max = _WORKER_FAILURES_MAX if is_worker_late(error) else _ONCE_FAILURES_MAX
        if self._is_once and running.failures >= failures_max:
            raise QueryFailed(f"query {running.name} failed: {running.problem}")
        running.start_at = self._clock.monotonic() + seconds
        logger.warning("query %s failed", running.name, exc_info=error)
        self._display.tell(f"query {running.name} failed: {running.problem}; it restarts in {seconds:g} s")

    def _take_reports(self, running: _Running) -> None:
        if running.query is None:
            return
        try:
            has_news = running.progress.take([_as_mapping(report) for report in running.query.recentProgress])
        except (Py4JError, PySparkException):
            return  # the JVM is on its way out; the query's end tells why
        if has_news:
            running.failures = 0
            running.problem = ""

    # --- what is shown --------------------------------------------------------------------------------------------

    def _look(self, *, is_last: bool = False) -> None:
        now = self._clock.monotonic()
        if now - self._shown_at < _SHOW_SECONDS and not is_last:
            return
        self._shown_at = now
        if not is_last and ensure_callbacks(self._spark):
            self._display.tell(
                "Spark could no longer call this process; the connection is restored, and batches are retried"
            )
        for running in self._running:
            self._take_reports(running)
        self._note_begun()  # a query that has nothing to do reports nothing
        latest = self._latest()
        for running in self._running:
            running.lags = running.progress.lags(latest)
        views = [running.view() for running in self._running]
        self.metrics.lags = {running.sink.name: running.lags for running in self._running}
        self.metrics.views = views
        self._display.show(views)

    def _latest(self) -> Mapping[TopicPartition, Offset]:
        partitions = {one for running in self._running for one in running.progress.ends}
        if not partitions:
            return {}
        try:
            client = shared_client(self._pipeline.bootstrap, ClusterOptions(retry_timeout_seconds=_SHOW_SECONDS))
            return client.wait_for(end_offsets(client.cluster, sorted(partitions)))
        except (KafkaError, NetworkFailed):
            return {}  # lag is not known while the cluster does not answer; the queries tell why

    # --- the end --------------------------------------------------------------------------------------------------

    def _stop_all(self) -> None:
        """Each query after its batch. The sources have nothing new from now on."""
        for running in self._running:
            if running.query is None:
                continue
            self._wait_for_rest(running.query)
            self._take_reports(running)
            self._wait_for_commit(running)
            try:
                running.query.stop()
            except (PySparkException, Py4JError) as error:
                logger.warning("query %s did not stop cleanly: %s", running.name, error)
            self._take_reports(running)
            running.query = None
            running.is_done = True

    def _wait_for_rest(self, query: StreamingQuery) -> None:
        deadline = self._clock.monotonic() + _STOP_SECONDS_MAX
        while query.isActive and self._clock.monotonic() < deadline:
            if not query.status["isTriggerActive"]:
                return
            self._clock.sleep(0.005)

    def _wait_for_commit(self, running: _Running) -> None:
        """Until the query's group has what is done. The streams commit it (`barnabas.spark.lag`), a moment later."""
        ends = dict(running.progress.ends)
        deadline = self._clock.monotonic() + _COMMIT_SECONDS_MAX
        try:
            client = shared_client(self._pipeline.bootstrap, ClusterOptions(retry_timeout_seconds=_SHOW_SECONDS))
            while ends and self._clock.monotonic() < deadline:
                committed = client.wait_for(committed_offsets(client.cluster, running.name, list(ends)))
                if all(one in committed and committed[one].offset >= end for one, end in ends.items()):
                    return
                self._clock.sleep(0.05)
        except (KafkaError, NetworkFailed) as error:
            logger.warning("query %s: its progress may not be committed: %s", running.name, error)


def _as_mapping(report: Any) -> Mapping[str, Any]:
    """A report as plain values; PySpark's own objects differ between versions."""
    return json.loads(report.json) if hasattr(report, "json") else dict(report)


class _locked:  # noqa: N801 - reads as a word in `with`
    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._file: TextIO | None = None

    def __enter__(self) -> None:
        self._checkpoint.mkdir(parents=True, exist_ok=True)
        self._file = open(self._checkpoint / LOCK_FILE, "w")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise PipelineBusy(f"another process runs this pipeline: {os.fspath(self._checkpoint)} is locked") from None

    def __exit__(self, *_: object) -> None:
        assert self._file is not None, "entered before"
        self._file.close()
