"""Reads the batches of a log file from front to back in bounded memory, whatever its bytes are: for tools.

The log itself trusts its indexes and reads little; a tool looks at every byte, on files that may be damaged, or that a
broker writes at this moment. Memory holds one chunk, or one batch where a batch is larger; a length that no batch could
have is not believed before the checksum of those bytes has been found right.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from barnabas.base.filesystem import File
from barnabas.base.ids import Position
from barnabas.records import kernel
from barnabas.records.batch import (
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    BatchHeader,
    Codec,
    read_header,
)
from barnabas.records.compression import decompress_chunks
from barnabas.records.results import RecordSummary

_CHUNK_BYTES: Final = 1 << 20
_LARGE_BATCH_BYTES: Final = 64 << 20


class StreamedBatch(NamedTuple):
    """A batch with a right checksum and, unless it is compressed, well-formed records."""

    position: Position
    header: BatchHeader
    batch: memoryview


class Damage(NamedTuple):
    """Bytes that are no batch. `header` is what stands there, if there is room for one."""

    position: Position
    problem: str
    header: BatchHeader | None
    is_end: bool
    """Whether the file simply ends within a batch, as a crash or a writer at work leaves it."""


def stream_batches(
    file: File,
    *,
    verify: bool = True,
    skip_damage: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> Iterator[StreamedBatch | Damage]:
    """Every batch up to the end of the file, or up to the first damage, which is the last thing yielded.

    With `skip_damage` the stream goes on after a batch whose content is bad, if another one follows where it ends.
    Without `verify` only lengths and magic are looked at.
    """
    size = file.size()
    position = 0
    chunk_bytes = _CHUNK_BYTES
    while position < size:
        chunk = memoryview(file.read_at(min(chunk_bytes, size - position), position))
        scan = kernel.scan_batches(chunk, verify=verify)
        start = position
        for header in scan.headers:
            place = position - start
            yield StreamedBatch(position, header, chunk[place : place + header.size_bytes])
            position += header.size_bytes
        damage = _damage(file, position, size, scan.needed_bytes, scan.problem)
        if damage is not None:
            yield damage
            if not skip_damage or damage.header is None or not _continues_after(file, position, damage.header, size):
                return
            position += damage.header.size_bytes
        if on_progress is not None:
            on_progress(position - start)
        chunk_bytes = max(_CHUNK_BYTES, scan.needed_bytes)


def _damage(file: File, position: Position, size: int, needed_bytes: int, problem: str | None) -> Damage | None:
    """Why the stream cannot go on at `position`, or None when it can."""
    left = size - position
    if problem is None and needed_bytes <= min(left, _LARGE_BATCH_BYTES):
        return None
    header = read_header(file.read_at(HEADER_BYTES, position)) if left >= HEADER_BYTES else None
    if problem is not None:
        return Damage(position, problem, header, is_end=False)
    if needed_bytes > left:
        wanted = f"a batch of {needed_bytes} bytes" if header is not None else "a batch header"
        return Damage(position, f"{left} bytes are left, but {wanted} begins here", header, is_end=True)
    assert header is not None
    if not _is_checksum_right(file, position, header):
        return Damage(position, "the checksum does not match", header, is_end=False)
    return None


def _is_checksum_right(file: File, position: Position, header: BatchHeader) -> bool:
    crc = 0
    end = position + header.size_bytes
    for place in range(position + CRC_START, end, _CHUNK_BYTES):
        crc = kernel.crc32c(file.read_at(min(_CHUNK_BYTES, end - place), place), crc)
    return crc == header.crc


def _continues_after(file: File, position: Position, bad: BatchHeader, size: int) -> bool:
    """Whether the length of a bad batch can be believed, because it leads to another batch or to the end."""
    if bad.magic != MAGIC or bad.length < HEADER_BYTES - PREFIX_BYTES:
        return False
    after = position + bad.size_bytes
    if after == size:
        return True
    if after + HEADER_BYTES > size:
        return False
    header = read_header(file.read_at(HEADER_BYTES, after))
    return header.magic == MAGIC and header.length >= HEADER_BYTES - PREFIX_BYTES


class WalkedBatch(NamedTuple):
    summary: RecordSummary
    expanded_bytes: int


def walk_batch(header: BatchHeader, batch: memoryview) -> WalkedBatch:
    """Walks the records, decompressed in bounded chunks; `CorruptBatch` when they are not what the header says.

    Offset deltas may have gaps, because compaction leaves some.
    """
    walker = kernel.RecordWalker(
        header.count, header.base_timestamp, consecutive=False, last_offset_delta=header.last_offset_delta
    )
    records = batch[HEADER_BYTES:]
    if header.codec_number == Codec.NONE or not header.count:
        walker.feed(records)
        return WalkedBatch(walker.finish(), len(records))
    expanded_bytes = 0
    for chunk in decompress_chunks(header.codec_number, records):
        walker.feed(chunk)
        expanded_bytes += len(chunk)
    return WalkedBatch(walker.finish(), expanded_bytes)


def records_problem(header: BatchHeader, walked: WalkedBatch) -> str | None:
    """What the header says wrongly about the records; None when nothing is wrong."""
    max_timestamp = walked.summary.max_timestamp
    if header.count and not header.is_log_append_time and max_timestamp != header.max_timestamp:
        return f"the largest timestamp is {max_timestamp}, but the header says {header.max_timestamp}"
    return None
