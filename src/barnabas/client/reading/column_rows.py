"""Rows of columns as the contents of a producer's batch: encoded when they come, so that the columns can be let go.

`ColumnRows` remembers which row of the caller's input each record was, for the error that names it, and can be parted
when a topic takes only smaller batches. Pure.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from barnabas.base.buffers import Buffer
from barnabas.base.ids import NO_EPOCH, NO_PRODUCER, NO_SEQUENCE, TimestampMs
from barnabas.records.batch import MAGIC, BatchHeader
from barnabas.records.columns import NO_PRODUCER_EPOCH, RecordsSection, encode_sections
from barnabas.records.kernel import ColumnDecoder
from barnabas.records.results import Columns, PartitionedRows

_INT32: Final = Struct("<i")
_ROW_BYTES: Final = 31
"""What a record takes beside its key and value: lengths, deltas and counts, at most."""


class ColumnRows:
    """`rows` are places in `row_numbers`, which has the caller's number of each row of the columns."""

    __slots__ = ("_row_numbers", "_rows", "_section", "count")

    def __init__(self, section: RecordsSection, rows: Sequence[int], row_numbers: Sequence[int]) -> None:
        self._section: RecordsSection | None = section
        self._rows = rows
        self._row_numbers = row_numbers
        self.count = section.count

    def section(self) -> RecordsSection:
        assert self._section is not None, "the contents of a batch are asked for after it has gone"
        return self._section

    def timestamp(self, row: int) -> TimestampMs:
        raise AssertionError("rows of columns are not awaited one by one")

    def forget_contents(self) -> None:
        self._section = None
        self._rows = ()
        self._row_numbers = ()

    def describe(self, index: int | None) -> str:
        """Which rows these are, or which one record of them is, in the caller's numbers."""
        if self.count == 1:
            index = 0
        if index is not None and 0 <= index < self.count:
            return f"row {self._row_numbers[self._rows[index]]}"
        first, last = self._row_numbers[self._rows[0]], self._row_numbers[self._rows[self.count - 1]]
        return f"one of {self.count} rows from {first} to {last}"

    def halves(self) -> "list[ColumnRows]":
        """Its rows in two parts; one row cannot be parted."""
        if self.count == 1:
            return []
        columns = _decoded(self.section())
        middle = self.count // 2
        parts = []
        for start, stop in ((0, middle), (middle, self.count)):
            (section,) = encode_sections(columns, max_batch_bytes=2**31 - 1, start=start, stop=stop)
            parts.append(ColumnRows(section, self._rows[start:stop], self._row_numbers))
        return parts


def _decoded(section: RecordsSection) -> Columns:
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=NO_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=section.count - 1,
        base_timestamp=section.base_timestamp,
        max_timestamp=section.max_timestamp,
        producer_id=NO_PRODUCER,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        count=section.count,
    )
    decoder = ColumnDecoder()
    decoder.append_records(section.records, header)
    return decoder.finish()


def columns_bytes(columns: Columns) -> int:
    """About what the rows take in batches: exact for keys and values, and a little too much for the rest."""
    return (
        columns.count * _ROW_BYTES
        + _data_bytes(columns.key_offsets, columns.count)
        + _data_bytes(columns.value_offsets, columns.count)
        + len(columns.header_key_data)
        + len(columns.header_value_data)
    )


def _data_bytes(offsets: Buffer, count: int) -> int:
    start: int = _INT32.unpack_from(offsets, 0)[0]
    stop: int = _INT32.unpack_from(offsets, count * 4)[0]
    return stop - start


def rows_by_partition(
    columns: Columns, partitioned: PartitionedRows, row_numbers: Sequence[int], batch_bytes_max: int
) -> Iterator[tuple[int, ColumnRows]]:
    """The batches of each partition, partition by partition; a row that is larger than a batch gets its own."""
    places = memoryview(partitioned.rows).cast("i")
    bounds = partitioned.bounds
    for partition in range(len(bounds) - 1):
        start, stop = bounds[partition], bounds[partition + 1]
        for section in encode_sections(
            columns, max_batch_bytes=batch_bytes_max, start=start, stop=stop, rows=partitioned.rows
        ):
            yield partition, ColumnRows(section, places[start : start + section.count], row_numbers)
            start += section.count
