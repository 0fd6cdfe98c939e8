"""Reads the records of an internal partition back, without holding the event loop.

Reading and decoding happen in a worker thread, a megabyte at a time; keys and values are handed over on the loop in
slices of a few milliseconds, with other work in between. However many partitions are read at once, they take turns: one
slice in each round of the loop. What is written while this runs is not seen: the reader knows the end that it is to
reach, and nobody writes before it is there.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import pairwise
from struct import unpack
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

Row: TypeAlias = tuple[bytes, bytes | None]
TakeRows: TypeAlias = Callable[[Iterable[Row]], None]


async def read_rows(partition: LedPartition, buffer_bytes: int, take: TakeRows, turns: asyncio.Lock) -> int:
    """Hands every record with a key to `take`, in order, in slices; returns how many. CorruptBatch for a bad one.

    It may stop early when the partition is not led any more: whoever asked looks at that.
    """
    offset, end_offset = partition.start_offset, partition.end_offset
    read_bytes = min(buffer_bytes, READ_BYTES_MAX)
    loop = asyncio.get_running_loop()
    count = 0
    while offset < end_offset and partition.is_led:
        run = await partition.read(offset, read_bytes)
        if not run:
            break
        columns = await loop.run_in_executor(None, _decode, run, offset)
        for start in range(0, columns.count, SLICE_ROWS):
            async with turns:
                take(_rows(columns, start, min(columns.count, start + SLICE_ROWS)))
                await asyncio.sleep(0)  # a round of the loop for everybody else, with the turn still taken
        count += columns.count
        offset = _next_offset(columns, run)
    return count


def _decode(run: Buffer, first_offset: Offset) -> Columns:
    return decode_run(run, first_offset=first_offset, with_headers=False).columns


def _next_offset(columns: Columns, run: Buffer) -> Offset:
    """After the last row; where there is none (control records, compacted ones), after the first batch."""
    if columns.count:
        [last_offset] = unpack("<q", memoryview(columns.offsets).cast("B")[(columns.count - 1) * 8 : columns.count * 8])
        return int(last_offset) + 1
    assert len(run) >= HEADER_BYTES, "a read brings its first batch whole"
    return read_header(memoryview(run)).next_offset


def _rows(columns: Columns, start: int, stop: int) -> Iterable[Row]:
    keys = _texts(columns.key_offsets, columns.key_data, columns.key_validity, start, stop)
    values = _texts(columns.value_offsets, columns.value_data, columns.value_validity, start, stop)
    if columns.key_validity is None:
        return zip(keys, values, strict=True)  # type: ignore[arg-type] # without nulls every key is there
    return [(key, value) for key, value in zip(keys, values, strict=True) if key is not None]


def _texts(
    offsets: Buffer, data: Buffer, validity: Buffer | None, start: int, stop: int
) -> list[bytes] | list[bytes | None]:
    ends = unpack(f"<{stop - start + 1}i", memoryview(offsets).cast("B")[start * 4 : (stop + 1) * 4])
    contents = bytes(memoryview(data).cast("B")[ends[0] : ends[-1]])
    first = ends[0]
    texts = [contents[low - first : high - first] for low, high in pairwise(ends)]
    if validity is None:
        return texts
    bits = bytes(validity)
    return [text if bits[row >> 3] >> (row & 7) & 1 else None for row, text in enumerate(texts, start)]
