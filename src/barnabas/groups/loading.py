"""Reads the records of an internal partition back, without holding the event loop.

Files are read in a worker thread. Decoding is done on the loop, a few batches at a time: a million records take 0.1 s
of it, while waiting for a worker to decode them beside a busy loop was seen to take 0.5 s. Keys and values are handed
over in slices of less than a millisecond, with other work in between. Only a batch that is large or compressed is
decoded in the worker. What is written while this runs is not seen: the reader knows the end that it must reach, and
nobody writes before it gets there.

What cannot be read is left out and noted in `Damage`, and never stops the rest. A batch whose checksum is wrong is
passed over by the length that it states. Where that leads nowhere the reader looks for a place from which it can go on,
at offsets that are one, two, four and so on further: the index leads past the damage to one of them. Records that a
batch holds before the offset that was asked for are handed over, too: the last value of a key counts.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct, unpack_from
from typing import Final, TypeAlias

from barnabas.base.buffers import Buffer
from barnabas.base.errors import BarnabasError, CorruptBatch
from barnabas.base.ids import Offset
from barnabas.base.logs import fields
from barnabas.groups.partitions import LedPartition
from barnabas.records.batch import HEADER_BYTES, MAGIC, BatchHeader, Codec, read_header
from barnabas.records.columns import decode_run
from barnabas.records.results import Columns

SLICE_ROWS: Final = 1500
"""Rows that are handed over at a time: about half a millisecond of work."""
PIECE_BYTES: Final = 96 << 10
"""Decoded on the loop at a time: about as many rows."""

_LAYOUTS_REMEMBERED: Final = 64

TakeRecords: TypeAlias = Callable[[Sequence[bytes], Sequence[bytes | None], Sequence[Offset]], None]
"""Gets keys, and the values and offsets that belong to them."""


class Damage:
    """What could not be read of a partition: how much, and where it begins."""

    __slots__ = ("batches", "first_offset", "first_problem", "records")

    def __init__(self) -> None:
        self.records = 0
        """Single ones, in batches that are good."""
        self.batches = 0
        """Stretches of the log, of at least one batch each."""
        self.first_offset: Offset | None = None
        self.first_problem = ""

    def record(self, offset: Offset, problem: BarnabasError) -> None:
        self.records += 1
        self._note(offset, problem)

    def batch(self, offset: Offset, problem: BarnabasError) -> None:
        self.batches += 1
        self._note(offset, problem)

    def _note(self, offset: Offset, problem: BarnabasError) -> None:
        if self.first_offset is None or offset < self.first_offset:
            self.first_offset, self.first_problem = offset, str(problem)

    def report(self, logger: logging.Logger, topic: str, partition: int) -> None:
        """One line, if there is anything to say."""
        if self.first_offset is not None:
            logger.error(
                "%s-%d: skipped unreadable data (damaged batches: %d, records: %d), the first at offset %d: %s",
                *(topic, partition, self.batches, self.records, self.first_offset, self.first_problem),
                extra=fields(topic=topic, partition=partition, offset=self.first_offset),
            )


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
    """`count` texts of one length in a row: nearly all values of commits are like this."""
    return Struct(f"{length}s" * count)


@dataclass(frozen=True, slots=True)
class _Run:
    count: int
    next_offset: Offset
    consumed_bytes: int
    keys: _Column
    values: _Column
    offsets: Sequence[Offset]


async def read_records(
    partition: LedPartition, buffer_bytes: int, take: TakeRecords, damage: Damage, slice_rows: int = SLICE_ROWS
) -> int:
    """Hands every record with a key to `take`, in order, in slices; returns how many. What is bad is in `damage`.

    It may stop early when the partition is no longer led: the caller must check that.
    """
    reading = _Reading(partition, take, damage, slice_rows)
    while reading.offset < reading.end_offset and partition.is_led:
        await reading.read_piece(buffer_bytes)
    return reading.count


class _Reading:
    """How far a partition is read."""

    def __init__(self, partition: LedPartition, take: TakeRecords, damage: Damage, slice_rows: int) -> None:
        self.offset, self.end_offset = partition.start_offset, partition.end_offset
        self.count = 0
        self._partition = partition
        self._take = take
        self._damage = damage
        self._slice_rows = slice_rows
        self._leap = 0
        """How far the last look ahead went, while nothing can be read."""

    async def read_piece(self, buffer_bytes: int) -> None:
        """Goes on by one read of the partition, or past a place where there is nothing to be read."""
        self.offset = max(self.offset, self._partition.start_offset)
        begun_at = self.offset
        try:
            batches = memoryview(await self._partition.read(begun_at, buffer_bytes))
            if not batches:  # compaction has left nothing from here on
                self.offset = self.end_offset
                return
            position = 0
            while size_bytes := await self._read_run(batches[position:]):
                position += size_bytes
            if self.offset <= begun_at:
                raise CorruptBatch("there is no whole batch")
        except CorruptBatch as problem:
            self.offset = max(self.offset, begun_at)
            if not self._leap:
                self._damage.batch(self.offset, problem)
            self._leap = 2 * self._leap or 1
            self.offset += self._leap
        else:
            self._leap = 0

    async def _read_run(self, batches: memoryview) -> int:
        """Hands over the first few batches, or passes over a bad one. How many bytes they have; 0 when not even one is
        there whole."""
        if len(batches) < HEADER_BYTES:
            return 0
        first = read_header(batches)
        if not HEADER_BYTES <= first.size_bytes <= len(batches):
            return 0
        try:
            run = await _decode_first(batches, first, self._partition.workers)
        except CorruptBatch as problem:
            if not self._is_plausible(first):
                raise
            self._damage.batch(self.offset, problem)
            self.offset = first.next_offset
            return first.size_bytes
        for start in range(0, run.count, self._slice_rows):
            _hand_over(run, start, min(run.count, start + self._slice_rows), self._take)
            await asyncio.sleep(0)  # a round of the loop for everybody else
        self.count += run.count
        # No checksum covers a batch's offset: one that cannot be must not lead past the others.
        self.offset = run.next_offset if run.next_offset <= self.end_offset else self.offset + max(1, run.count)
        return run.consumed_bytes

    def _is_plausible(self, bad: BatchHeader) -> bool:
        """Whether the header of a bad batch can be believed as to where the next one is."""
        return (
            bad.magic == MAGIC
            and bad.count == bad.last_offset_delta + 1
            and self.offset < bad.next_offset <= self.end_offset
        )


async def _decode_first(batches: memoryview, first: BatchHeader, workers: Executor) -> _Run:
    """The first batch, and some more if they are small and good."""
    if first.size_bytes > PIECE_BYTES or first.codec_number != Codec.NONE:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(workers, _decode, batches[: first.size_bytes])
    try:
        return _decode(batches[:PIECE_BYTES])
    except CorruptBatch:
        return _decode(batches[: first.size_bytes])


def _hand_over(run: _Run, start: int, stop: int, take: TakeRecords) -> None:
    keys, values, offsets = run.keys.part(start, stop), run.values.part(start, stop), run.offsets[start:stop]
    if run.keys.validity is None:
        take(keys, values, offsets)  # type: ignore[arg-type] # without nulls every key is there
    else:
        present = [one for one in zip(keys, values, offsets, strict=True) if one[0] is not None]
        if present:
            take(*zip(*present, strict=True))


def _decode(batches: Buffer) -> _Run:
    columns, consumed_bytes = decode_run(batches, with_headers=False)
    return _Run(
        columns.count,
        _next_offset(columns, batches),
        consumed_bytes,
        _column(columns.count, columns.key_offsets, columns.key_data, columns.key_validity),
        _column(columns.count, columns.value_offsets, columns.value_data, columns.value_validity),
        memoryview(columns.offsets).cast("B").cast("q"),
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
