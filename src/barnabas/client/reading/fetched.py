"""What a fetch brings: a run of whole batches as they are in the log, and ways to look into it. Pure.

A run keeps the received bytes alive. `columns()` returns columns, `records()` iterates over objects; both leave
out control records, what lies before the first wanted offset, and (read committed) aborted transactions.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.base.buffers import Buffer
from barnabas.base.errors import CorruptBatch
from barnabas.base.ids import Offset, TimestampMs, TopicPartition
from barnabas.records.batch import BatchHeader
from barnabas.records.builder import Header
from barnabas.records.columns import decode_run
from barnabas.records.kernel import scan_batches
from barnabas.records.results import Columns
from barnabas.wire.fetch import AbortedTransaction

OFFSET_MAX: Final = 2**63 - 1


class ConsumedRecord(NamedTuple):
    partition: TopicPartition
    offset: Offset
    timestamp_ms: TimestampMs
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class AbortedRange(NamedTuple):
    """The records of this producer from one offset to the other were aborted."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset


@dataclass(frozen=True, slots=True)
class FetchedRun:
    partition: TopicPartition
    first_offset: Offset
    """The one that was asked for; the first batch may begin before it."""
    next_offset: Offset
    """Where to go on."""
    batches: memoryview
    aborted: tuple[AbortedRange, ...]
    high_watermark: Offset
    last_stable_offset: Offset

    def columns(self, *, end_offset: Offset = OFFSET_MAX, with_headers: bool = True) -> Columns:
        """CorruptBatch when a checksum does not match, or when the records are not what their header says."""
        decoded = decode_run(
            self.batches,
            first_offset=self.first_offset,
            end_offset=end_offset,
            with_headers=with_headers,
            aborted=self.aborted,
        )
        return decoded.columns

    def records(self, *, end_offset: Offset = OFFSET_MAX) -> Iterator[ConsumedRecord]:
        return read_rows(self.partition, self.columns(end_offset=end_offset))


def make_run(
    partition: TopicPartition,
    first_offset: Offset,
    received: memoryview,
    aborted: Sequence[AbortedTransaction],
    high_watermark: Offset,
    last_stable_offset: Offset,
) -> FetchedRun | None:
    """The whole batches at the start of what a broker sent; None when there are none.

    A broker may cut the last batch short. It never does so with the first, so one that starts broken is corrupt.
    """
    scan = scan_batches(received, verify=False)
    if not scan.headers:
        if len(received):
            raise CorruptBatch(
                f"{partition} at offset {first_offset}: {scan.problem or 'the first batch is cut short'}"
            )
        return None
    return FetchedRun(
        partition,
        first_offset,
        max(scan.headers[-1].next_offset, first_offset),
        received[: scan.valid_bytes],
        tuple(aborted_ranges(scan.headers, aborted)),
        high_watermark,
        last_stable_offset,
    )


def aborted_ranges(headers: Sequence[BatchHeader], aborted: Iterable[AbortedTransaction]) -> Iterator[AbortedRange]:
    """Where in the run the aborted transactions end: a broker tells only where they began.

    A producer's transaction ends with its next control batch. When that is not in the run, it reaches beyond it.
    """
    markers: dict[int, list[Offset]] = {}
    for header in headers:
        if header.is_control:
            markers.setdefault(header.producer_id, []).append(header.base_offset)
    for producer_id, first_offset in aborted:
        ends = (offset for offset in markers.get(producer_id, ()) if offset > first_offset)
        yield AbortedRange(producer_id, first_offset, next(ends, OFFSET_MAX))


def read_rows(partition: TopicPartition, columns: Columns) -> Iterator[ConsumedRecord]:
    """The rows of columns, with headers, as objects."""
    offsets = memoryview(columns.offsets).cast("B").cast("q")
    timestamps = memoryview(columns.timestamps).cast("B").cast("q")
    header_lists = memoryview(columns.header_list_offsets).cast("B").cast("i")
    keys = _Binary(columns.key_offsets, columns.key_data, columns.key_validity)
    values = _Binary(columns.value_offsets, columns.value_data, columns.value_validity)
    header_keys = _Binary(columns.header_key_offsets, columns.header_key_data, None)
    header_values = _Binary(columns.header_value_offsets, columns.header_value_data, columns.header_value_validity)
    no_headers: tuple[Header, ...] = ()
    for row in range(columns.count):
        first, last = header_lists[row], header_lists[row + 1]
        headers = no_headers
        if first != last:
            names = [(header_keys[index] or b"").decode("utf-8", "surrogateescape") for index in range(first, last)]
            headers = tuple(Header(name, header_values[first + index]) for index, name in enumerate(names))
        yield ConsumedRecord(partition, offsets[row], timestamps[row], keys[row], values[row], headers)


class _Binary:
    __slots__ = ("_data", "_offsets", "_validity")

    def __init__(self, offsets: Buffer, data: Buffer, validity: Buffer | None) -> None:
        self._offsets = memoryview(offsets).cast("B").cast("i")
        self._data = memoryview(data)
        self._validity = validity

    def __getitem__(self, row: int) -> bytes | None:
        if self._validity is not None and not self._validity[row >> 3] >> (row & 7) & 1:
            return None
        return self._data[self._offsets[row] : self._offsets[row + 1]].tobytes()
