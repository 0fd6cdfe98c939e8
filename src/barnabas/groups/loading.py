"""Reads the records of an internal partition back, without holding the event loop.

Reading and decoding happen in a worker thread, a megabyte at a time; keys and values are handed over on the loop in
slices of about a millisecond, with other work in between. What is written while this runs is not seen: the reader knows
the end that it is to reach, and nobody writes before it is there.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import unpack_from
from typing import Final, TypeAlias

from barnabas.base.filesystem import Buffer
from barnabas.base.ids import Offset
from barnabas.groups.partitions import LedPartition
from barnabas.records.batch import HEADER_BYTES, read_header
from barnabas.records.columns import decode_run
from barnabas.records.results import Columns

SLICE_ROWS: Final = 1000
"""Rows that are handed over at a time: about a millisecond of work."""
READ_BYTES_MAX: Final = 1 << 20
"""Decoding more than this at once would hold the interpreter for too long."""

TakeRecords: TypeAlias = Callable[[Sequence[bytes], Sequence[bytes | None]], None]
"""Gets keys and the values that belong to them."""


@dataclass(frozen=True, slots=True)
class _Column:
    """All keys or all values of a run, one after the other."""

    data: bytes
    ends: tuple[int, ...]
    """Where each begins, which is where the one before ends; after the last one's beginning its end."""
    validity: bytes | None
    """A bit for each: whether it is not null. None when none is null."""

    def part(self, start: int, stop: int) -> "list[bytes] | list[bytes | None]":
        data, ends = self.data, self.ends
        texts = [data[low:high] for low, high in zip(ends[start:stop], ends[start + 1 : stop + 1], strict=True)]
        bits = self.validity
        if bits is None:
            return texts
        return [text if bits[row >> 3] >> (row & 7) & 1 else None for row, text in enumerate(texts, start)]


@dataclass(frozen=True, slots=True)
class _Run:
    count: int
    next_offset: Offset
    keys: _Column
    values: _Column


async def read_records(partition: LedPartition, buffer_bytes: int, take: TakeRecords) -> int:
    """Hands every record with a key to `take`, in order, in slices; returns how many. CorruptBatch for a bad one.

    It may stop early when the partition is not led any more: whoever asked looks at that.
    """
    offset, end_offset = partition.start_offset, partition.end_offset
    read_bytes = min(buffer_bytes, READ_BYTES_MAX)
    loop = asyncio.get_running_loop()
    count = 0
    while offset < end_offset and partition.is_led:
        batches = await partition.read(offset, read_bytes)
        if not batches:
            break
        run = await loop.run_in_executor(None, _decode, batches, offset)
        for start in range(0, run.count, SLICE_ROWS):
            _hand_over(run, start, min(run.count, start + SLICE_ROWS), take)
            await asyncio.sleep(0)  # a round of the loop for everybody else
        count += run.count
        offset = run.next_offset
    return count


def _hand_over(run: _Run, start: int, stop: int, take: TakeRecords) -> None:
    keys, values = run.keys.part(start, stop), run.values.part(start, stop)
    if run.keys.validity is None:
        take(keys, values)  # type: ignore[arg-type] # without nulls every key is there
    else:
        present = [(key, value) for key, value in zip(keys, values, strict=True) if key is not None]
        take([key for key, _ in present], [value for _, value in present])


def _decode(batches: Buffer, first_offset: Offset) -> _Run:
    columns = decode_run(batches, first_offset=first_offset, with_headers=False).columns
    return _Run(
        columns.count,
        _next_offset(columns, batches),
        _column(columns.count, columns.key_offsets, columns.key_data, columns.key_validity),
        _column(columns.count, columns.value_offsets, columns.value_data, columns.value_validity),
    )


def _column(count: int, offsets: Buffer, data: Buffer, validity: Buffer | None) -> _Column:
    ends = unpack_from(f"<{count + 1}i", offsets)
    return _Column(bytes(data), ends, None if validity is None else bytes(validity))


def _next_offset(columns: Columns, batches: Buffer) -> Offset:
    """After the last row; where there is none (control records, compacted ones), after the first batch."""
    if columns.count:
        [last_offset] = unpack_from("<q", columns.offsets, (columns.count - 1) * 8)
        return int(last_offset) + 1
    assert len(batches) >= HEADER_BYTES, "a read brings its first batch whole"
    return read_header(memoryview(batches)).next_offset
