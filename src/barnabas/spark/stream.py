"""The reader of a streaming query. One lives in a process of its own on the driver's side for each run of a query.

```
initialOffset ─▶ latestOffset (= start: batch 0 is empty) ─▶ partitions ─▶ latestOffset(start=done) ─▶ …
                        │ nothing new: waits for records, then returns `start`
```

**Batch 0 is empty.** Spark does not keep what `initialOffset` said until a batch is logged; if the first batch had
records and were killed, a restart would resolve "latest" again and skip them. So the first `latestOffset` of a new
query returns its start, which the checkpoint keeps from then on. When batch 0 itself was aborted, Spark asks for the
initial offset again, and then runs batch 0 as it is in the checkpoint: there is nothing left to pin, and its range is
empty whatever the start would be now.

**Waiting.** Spark asks for the latest offsets again a few milliseconds after the answer that nothing is new. The
second such call in a row waits at the brokers (`watching`). A batch in between means that another source of the query
has work, so the next call does not wait; a long pause without one means that others wait too, so we wait only shortly.

**Limits.** `getDefaultReadLimit` always returns a number, so that `ReadAllAvailable` can only come from a trigger that
runs once: then one batch has everything, and we wait for nothing.

**Stopping.** `StreamingQuery.stop` aborts the running batch. While the file of option `stopFile` exists, there is
nothing new: the query runs dry after its batch, and can be stopped between two. A file, because this process and the
driver share nothing else.

Spark's `commit` comes late, and not at all for the last batch; progress is committed (`lag`) when `latestOffset` tells
by its `start` what is done, also while a stop file keeps it from looking for more. Spark kills the process at the end
of the query without calling `stop`.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from barnabas.base.clock import Clock, SystemClock
from barnabas.base.ids import TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.client.offsets import start_offsets
from barnabas.spark import lookup
from barnabas.spark.lag import StreamProgress
from barnabas.spark.offsets import (
    OffsetRange,
    OffsetTree,
    PartitionOffsets,
    describe_losses,
    from_tree,
    limited,
    new_rows,
    split_ranges,
    to_tree,
)
from barnabas.spark.options import SourceOptions
from barnabas.spark.reading import RangePartition, read_range, report_loss
from barnabas.spark.watching import EndWatch
from barnabas.spark.worker_process import shared_client

ROWS_UNLIMITED: Final = 2**63 - 1
_WAIT_MS: Final = 500
_SHORT_WAIT_MS: Final = 100
_PAUSE_OF_OTHERS_SECONDS: Final = 0.09
"""So long Spark takes between two calls only if something else in the query waits."""
_PARTITIONS_AGE_SECONDS_MAX: Final = 1.0
"""How soon a new topic or partition is noticed."""


class BarnabasStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._planner: StreamPlanner | None = None
        """Made when it is needed, because the reader travels to executors too."""

    def _plan(self) -> "StreamPlanner":
        if self._planner is None:
            client = shared_client(self._options.bootstrap, self._options.cluster)
            self._planner = StreamPlanner(client, self._options)
        return self._planner

    def initialOffset(self) -> OffsetTree:  # noqa: N802 - Spark's name
        return to_tree(self._plan().initial())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetTree:  # noqa: N802
        if self._is_stopping():
            self._plan().was_done(from_tree(start))
            return start
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else ROWS_UNLIMITED
        is_only_batch = isinstance(limit, ReadAllAvailable)
        end = to_tree(self._plan().next_end(from_tree(start), rows_max, is_only_batch=is_only_batch))
        return start if self._is_stopping() else end

    def _is_stopping(self) -> bool:
        return self._options.stop_file is not None and os.path.exists(self._options.stop_file)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.rows_max or ROWS_UNLIMITED)

    def reportLatestOffset(self) -> OffsetTree | None:  # noqa: N802
        return to_tree(self._plan().ends) or None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._plan().stop_at_present()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [RangePartition(one) for one in self._plan().ranges(from_tree(start), from_tree(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition), "planned by somebody else"
        return read_range(self._options, self._schema, partition.range)

    def commit(self, end: dict[str, Any]) -> None:
        self._plan().batch_was_run()

    def stop(self) -> None:
        """The client ends with the process."""


class StreamPlanner:
    """Decides what the next batch reads. `ends` is what was found last."""

    def __init__(self, client: BlockingClient, options: SourceOptions, clock: Clock | None = None) -> None:
        self.ends: PartitionOffsets = {}
        self._client = client
        self._cluster = client.cluster
        self._options = options
        self._clock = clock or SystemClock()
        self._progress: StreamProgress | None = None
        if options.group is not None:
            self._progress = StreamProgress(client.cluster, options.group, options.checkpoint)
        self._watch: EndWatch | None = None
        self._initial: PartitionOffsets | None = None
        self._is_start_pinned = True
        self._target: PartitionOffsets | None = None
        self._partitions: list[TopicPartition] = []
        self._partitions_found_at = float("-inf")
        self._has_nothing_new = False
        self._returned_at = float("-inf")
        self._last_batch_at = float("-inf")

    # --- where it begins ----------------------------------------------------------------------------------------

    def initial(self) -> PartitionOffsets:
        """Of a new query, the same as often as it is asked."""
        if self._initial is None:
            self._initial = self._client.wait_for(lookup.with_retries(self._options, self._resolve_initial))
            self._is_start_pinned = False
        return self._initial

    async def _resolve_initial(self) -> PartitionOffsets:
        partitions = await lookup.find_all_partitions(self._cluster, self._options.subscription)

        def on_loss(loss: str) -> None:
            report_loss(loss, self._options.is_failing_on_data_loss)

        return await lookup.resolve_start(self._cluster, self._options, partitions, on_loss)

    def stop_at_present(self) -> None:
        """From now on the query ends where the partitions end now."""
        self._target = self._client.wait_for(lookup.with_retries(self._options, self._find_ends))

    # --- where the next batch ends ------------------------------------------------------------------------------

    def next_end(self, start: PartitionOffsets, rows_max: int, *, is_only_batch: bool = False) -> PartitionOffsets:
        """`start` when there is nothing to do."""
        try:
            return self._client.wait_for(self._next_end(start, rows_max, is_only_batch))
        finally:
            self._returned_at = self._clock.monotonic()

    def was_done(self, start: PartitionOffsets) -> None:
        """Commits what is done, without looking for more."""
        if self._progress is not None:
            self._client.wait_for(self._progress.done(start))

    def batch_was_run(self) -> None:
        self._has_nothing_new = False

    async def _next_end(self, start: PartitionOffsets, rows_max: int, is_only_batch: bool) -> PartitionOffsets:
        if self._progress is not None:
            await self._progress.done(start)
        if not self._is_start_pinned:
            self._is_start_pinned = True
            if start == self._initial and not is_only_batch:
                self.ends = self.ends or dict(start)
                return start
        is_bounded = is_only_batch or self._target is not None
        if self._has_nothing_new and not is_bounded and not await self._wait():
            return start
        ends = await lookup.with_retries(self._options, lambda: self._ends_after(start))
        self.ends = dict(ends)
        for loss in describe_losses(start, ends):
            report_loss(loss, self._options.is_failing_on_data_loss)
        if ends == start or (not is_bounded and self._is_too_little(start, ends)):
            self._has_nothing_new = True
            return start
        self._has_nothing_new = False
        self._last_batch_at = self._clock.monotonic()
        return limited(start, ends, rows_max)

    async def _wait(self) -> bool:
        """Whether it is time to look for new ends."""
        is_alone = self._clock.monotonic() - self._returned_at < _PAUSE_OF_OTHERS_SECONDS
        wait_ms = _WAIT_MS if is_alone else _SHORT_WAIT_MS
        if self._watch is None:
            self._watch = EndWatch(self._cluster, self._options.reading.isolation, _WAIT_MS)
        began = self._clock.monotonic()
        if self.ends and await self._watch.wait(self.ends, wait_ms / 1000):
            return True
        left_seconds = wait_ms / 1000 - (self._clock.monotonic() - began)
        if left_seconds > 0:  # nothing to wait for at a broker
            await asyncio.sleep(left_seconds)
        return (
            self._options.rows_min is not None
            or self._clock.monotonic() - self._partitions_found_at > _PARTITIONS_AGE_SECONDS_MAX
        )

    def _is_too_little(self, start: PartitionOffsets, ends: PartitionOffsets) -> bool:
        rows_min = self._options.rows_min
        if rows_min is None or new_rows(start, ends) >= rows_min:
            return False
        waited_ms = (self._clock.monotonic() - self._last_batch_at) * 1000
        return waited_ms < self._options.trigger_delay_ms_max

    async def _ends_after(self, start: PartitionOffsets) -> PartitionOffsets:
        """The ends now, looked up again when they contradict `start`: a broker may be behind for a moment."""
        for tries_left in range(self._options.lookup_tries, -1, -1):
            ends = await self._find_ends()
            if self._target is not None:
                ends = self._bounded(start, ends, self._target)
            if not tries_left or not describe_losses(start, ends):
                break
            await asyncio.sleep(self._options.lookup_pause_ms / 1000)
            self._partitions_found_at = float("-inf")
        return ends

    def _bounded(self, start: PartitionOffsets, ends: PartitionOffsets, target: PartitionOffsets) -> PartitionOffsets:
        """The target, but for what went meanwhile, and for where the query is beyond it already."""
        bounded = {one: min(end, ends[one]) for one, end in target.items() if one in ends}
        for partition, offset in start.items():
            if partition in ends and bounded.get(partition, -1) < offset <= ends[partition]:
                bounded[partition] = offset
        return bounded

    async def _find_ends(self) -> PartitionOffsets:
        now = self._clock.monotonic()
        if now - self._partitions_found_at > _PARTITIONS_AGE_SECONDS_MAX:
            self._partitions = await lookup.find_partitions(self._cluster, self._options.subscription)
            self._partitions_found_at = now
        return await lookup.latest_offsets(self._cluster, self._options, self._partitions)

    # --- what it reads ------------------------------------------------------------------------------------------

    def ranges(self, start: PartitionOffsets, end: PartitionOffsets) -> list[OffsetRange]:
        if not self._is_start_pinned:  # a batch whose end Spark did not ask for: it is from the checkpoint
            self._is_start_pinned = True
            return []
        if self._progress is not None:
            self._client.wait_for(self._progress.planned(end))
        added = [partition for partition in end if partition not in start]
        first: Mapping[TopicPartition, int] = {}
        if added:
            lookup_first = lookup.with_retries(self._options, lambda: start_offsets(self._cluster, added))
            first = self._client.wait_for(lookup_first)
        for partition, offset in sorted(first.items()):
            if offset > 0:
                lost = f"{partition} is new, and its records from offset 0 to {offset - 1} are already deleted"
                report_loss(lost, self._options.is_failing_on_data_loss)
        begin = {**first, **start}
        whole = [OffsetRange(one, begin[one], end[one]) for one in sorted(end)]
        return split_ranges(whole, self._options.partitions_min, self._options.records_per_partition_max)
