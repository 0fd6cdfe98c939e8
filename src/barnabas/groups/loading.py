"""Reads the records of an internal partition back, without holding the event loop.

Files are read in a worker thread. Decoding is done on the loop, a few batches at a time: a million records take 0.1 s
of it, while waiting for a worker to decode them beside a busy loop was seen to take 0.5 s. Keys and values are handed
over in slices of less than a millisecond, with other work in between. Only a batch that is large or compressed is
decoded in the worker. What is written while this runs is not seen: the reader knows the end that it is to reach, and
nobody writes before it is there.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct, unpack_from
from typing import Final, TypeAlias

from barnabas.base.filesystem import Buffer
from barnabas.base.ids import Offset
from barnabas.groups.partitions import LedPartition
from barnabas.records.batch import HEADER_BYTES, Codec, read_header
from barnabas.records.columns import decode_run
from barnabas.records.results import Columns

SLICE_ROWS: Final = 1500
"""Rows that are handed over at a time: about half a millisecond of work."""
PIECE_BYTES: Final = 96 << 10
"""Decoded on the loop at a time: about as many rows."""

_LAYOUTS_REMEMBERED: Final = 64

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

    def part(self, start: int, stop: int) -> Sequence[bytes | None]:
        data, ends = self.data, self.ends
        first, length, count = ends[start], ends[start + 1] - ends[start], stop - start
        texts: Sequence[bytes]
        if length and ends[start : stop + 1] == tuple(range(first, first + length * count + 1, length)):
            texts = _texts_of(length, count).unpack_from(data, first)
        else:
            texts = [data[low:high] for low, high in zip(ends[start:stop], ends[start + 1 : stop + 1], strict=True)]
        bits = self.validity
        if bits is None:
            return texts
        return [text if bits[row >> 3] >> (row & 7) & 1 else None for row, text in enumerate(texts, start)]


@lru_cache(maxsize=_LAYOUTS_REMEMBERED)
def _texts_of(length: int, count: int) -> Struct:
    """So many of one length, one after the other: nearly all values of commits are."""
    return Struct(f"{length}s" * count)


@dataclass(frozen=True, slots=True)
class _Run:
    count: int
    next_offset: Offset
    consumed_bytes: int
    keys: _Column
    values: _Column


async def read_records(partition: LedPartition, buffer_bytes: int, take: TakeRecords) -> int:
    """Hands every record with a key to `take`, in order, in slices; returns how many. CorruptBatch for a bad one.

    It may stop early when the partition is not led any more: whoever asked looks at that.
    """
    offset, end_offset = partition.start_offset, partition.end_offset
    count = 0
    while offset < end_offset and partition.is_led:
        batches = memoryview(await partition.read(offset, buffer_bytes))
        position = 0
        while (run := await _next_run(batches[position:], offset)) is not None:
            for start in range(0, run.count, SLICE_ROWS):
                _hand_over(run, start, min(run.count, start + SLICE_ROWS), take)
                await asyncio.sleep(0)  # a round of the loop for everybody else
            count += run.count
            offset = run.next_offset
            position += run.consumed_bytes
        if not position:
            break
    return count


async def _next_run(batches: memoryview, first_offset: Offset) -> _Run | None:
    """The first few batches; None when not even one is there whole."""
    if len(batches) < HEADER_BYTES:
        return None
    first = read_header(batches)
    if first.size_bytes > len(batches):
        return None
    if first.size_bytes > PIECE_BYTES or first.codec_number != Codec.NONE:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, _decode, batches[: first.size_bytes], first_offset)
    return _decode(batches[:PIECE_BYTES], first_offset)


def _hand_over(run: _Run, start: int, stop: int, take: TakeRecords) -> None:
    keys, values = run.keys.part(start, stop), run.values.part(start, stop)
    if run.keys.validity is None:
        take(keys, values)  # type: ignore[arg-type] # without nulls every key is there
    else:
        present = [(key, value) for key, value in zip(keys, values, strict=True) if key is not None]
        take([key for key, _ in present], [value for _, value in present])


def _decode(batches: Buffer, first_offset: Offset) -> _Run:
    columns, consumed_bytes = decode_run(batches, first_offset=first_offset, with_headers=False)
    return _Run(
        columns.count,
        _next_offset(columns, batches),
        consumed_bytes,
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
    return read_header(memoryview(batches)).next_offset
