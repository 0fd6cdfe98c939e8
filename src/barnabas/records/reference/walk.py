"""Walking records without decoding them: validation, recovery's scan, searches by offset and by timestamp."""

from bisect import bisect_right
from collections.abc import Generator
from struct import Struct

from crc32c import crc32c as _crc32c

from barnabas.base.buffers import Buffer
from barnabas.base.errors import CorruptBatch, InvalidRecords
from barnabas.base.ids import NO_TIMESTAMP
from barnabas.records.batch import (
    CODEC_MASK,
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    BatchHeader,
    assign,
    read_header,
)
from barnabas.records.reference.parse import (
    VARINT_BYTES_MAX,
    VARLONG_BYTES_MAX,
    parse_records,
    unzigzag,
    wrap_int64,
)
from barnabas.records.results import REPORTED_INDEXES_MAX, AdmittedBatch, BatchScan, RecordSummary

_WIDE = Struct(">q")
_NARROW = Struct(">i")


def crc32c(data: Buffer, initial: int = 0, *, portable: bool = False) -> int:
    """CRC-32C of `data`, continuing from `initial`. There is one way here, so `portable` changes nothing."""
    return _crc32c(data, initial)


class RecordWalker:
    """Checks the records of a batch while they come in chunks; keeps no more of them than a varint.

    The offset deltas must be 0, 1, 2, …; of a batch that was compacted (`consecutive=False`) they must
    increase and not pass `last_offset_delta`. With `require_keys` the records without a key are named in the
    error at the end. A walker that raised is of no further use.
    """

    def __init__(
        self,
        count: int,
        base_timestamp: int,
        require_keys: bool = False,
        *,
        consecutive: bool = True,
        last_offset_delta: int | None = None,
    ) -> None:
        if count < 0:
            raise InvalidRecords("the record count is negative")
        self._count = count
        self._base_timestamp = base_timestamp
        self._requires_keys = require_keys
        self._is_consecutive = consecutive
        self._last_offset_delta = count - 1 if last_offset_delta is None else last_offset_delta
        self._index = 0
        self._previous_delta = -1
        self._summary = RecordSummary(0, NO_TIMESTAMP, -1, NO_TIMESTAMP)
        self._missing_keys: list[int] = []
        self._chunk = memoryview(b"")
        self._position = 0
        self._record_left = 0
        self._steps = self._walk()
        next(self._steps)

    def feed(self, chunk: Buffer) -> None:
        """Walks on over the next bytes of the records section."""
        if not len(chunk):
            return
        self._chunk = memoryview(chunk)
        self._position = 0
        next(self._steps)
        self._chunk = memoryview(b"")

    def finish(self) -> RecordSummary:
        """The records section ends here: was it whole?"""
        if self._index != self._count or self._record_left:
            raise InvalidRecords("the records end before their count is reached")
        if self._missing_keys:
            raise InvalidRecords(f"record {self._missing_keys[0]}: the record has no key", tuple(self._missing_keys))
        return self._summary._replace(count=self._index)

    def _walk(self) -> Generator[None, None, None]:
        """Pauses whenever it needs another chunk."""
        yield
        while True:
            while self._position == len(self._chunk):
                yield
            if self._index == self._count:
                raise InvalidRecords("bytes are left over after the last record")
            yield from self._walk_record()

    def _walk_record(self) -> Generator[None, None, None]:
        self._record_left = VARINT_BYTES_MAX  # of its length alone, until that is known
        length = yield from self._varint(VARINT_BYTES_MAX)
        if length < 1:
            raise self._problem("a length reaches beyond what contains it")
        self._record_left = length
        yield from self._skip(1)
        timestamp_delta = yield from self._varint(VARLONG_BYTES_MAX)
        offset_delta = yield from self._varint(VARINT_BYTES_MAX)
        has_key = yield from self._skip_bytes()
        yield from self._skip_bytes()
        header_count = yield from self._varint(VARINT_BYTES_MAX)
        if header_count < 0:
            raise self._problem("the header count is impossible")
        for _ in range(header_count):
            if not (yield from self._skip_bytes()):
                raise self._problem("a header is cut off or has no key")
            yield from self._skip_bytes()
        if self._record_left:
            raise self._problem("the fields do not fill the record's length")
        self._see_record(timestamp_delta, offset_delta, has_key)

    def _see_record(self, timestamp_delta: int, offset_delta: int, has_key: bool) -> None:
        if self._is_consecutive:
            if offset_delta != self._index:
                raise self._problem("the offset deltas are not consecutive")
        elif offset_delta <= self._previous_delta:
            raise self._problem("the offset deltas do not increase")
        elif offset_delta > self._last_offset_delta:
            raise self._problem("the offset delta is beyond the batch's last one")
        self._previous_delta = offset_delta
        timestamp = wrap_int64(self._base_timestamp + timestamp_delta)
        if self._index == 0 or timestamp > self._summary.max_timestamp:
            self._summary = self._summary._replace(max_timestamp=timestamp, max_timestamp_delta=offset_delta)
        smallest = self._summary.min_timestamp
        if timestamp != NO_TIMESTAMP and (smallest == NO_TIMESTAMP or timestamp < smallest):
            self._summary = self._summary._replace(min_timestamp=timestamp)
        if self._requires_keys and not has_key and len(self._missing_keys) < REPORTED_INDEXES_MAX:
            self._missing_keys.append(self._index)
        self._index += 1

    def _varint(self, bytes_max: int) -> Generator[None, None, int]:
        bits = 0
        for shift in range(0, 7 * bytes_max, 7):
            if not self._record_left:
                break
            while self._position == len(self._chunk):
                yield
            byte = self._chunk[self._position]
            self._position += 1
            self._record_left -= 1
            bits |= (byte & 0x7F) << shift
            if byte < 0x80:
                return unzigzag(bits, bytes_max)
        raise self._problem("a varint is cut off or too long")

    def _skip_bytes(self) -> Generator[None, None, bool]:
        """Skips a length and what it announces; whether it announced anything but null."""
        length = yield from self._varint(VARINT_BYTES_MAX)
        if length > self._record_left:
            raise self._problem("a length reaches beyond what contains it")
        yield from self._skip(max(length, 0))
        return length >= 0

    def _skip(self, length: int) -> Generator[None, None, None]:
        while length:
            while self._position == len(self._chunk):
                yield
            step = min(length, len(self._chunk) - self._position)
            self._position += step
            self._record_left -= step
            length -= step

    def _problem(self, text: str) -> InvalidRecords:
        return InvalidRecords(f"record {self._index}: {text}")


def walk_records(
    records: Buffer,
    count: int,
    base_timestamp: int,
    require_keys: bool = False,
    *,
    consecutive: bool = True,
    last_offset_delta: int | None = None,
) -> RecordSummary:
    """Checks the decompressed records of a batch as a whole, by the rules of `RecordWalker`."""
    walker = RecordWalker(
        count, base_timestamp, require_keys, consecutive=consecutive, last_offset_delta=last_offset_delta
    )
    walker.feed(records)
    return walker.finish()


def scan_batches(buffer: Buffer, position: int = 0, *, verify: bool = True, limit: int = 2**31 - 1) -> BatchScan:
    """The good batches from `position` on, up to a bad or an incomplete one or to `limit` batches.

    Good means: magic 2 and a possible length; with `verify` also the right checksum and, where they are not
    compressed, well-formed records whose offset deltas increase up to the header's last one.
    """
    view = memoryview(buffer)
    if not 0 <= position <= len(view):
        raise ValueError(f"position {position} is outside the buffer of {len(view)} bytes")
    start = position
    headers: list[BatchHeader] = []
    while position < len(view) and len(headers) < limit:
        if len(view) - position < HEADER_BYTES:
            return BatchScan(headers, position - start, HEADER_BYTES, None)
        header = read_header(view, position)
        problem = header_problem(header)
        if problem is None and header.size_bytes > len(view) - position:
            return BatchScan(headers, position - start, header.size_bytes, None)
        if problem is None and verify:
            problem = _content_problem(header, view[position : position + header.size_bytes])
        if problem is not None:
            return BatchScan(headers, position - start, 0, problem)
        headers.append(header)
        position += header.size_bytes
    return BatchScan(headers, position - start, 0, None)


def inspect_batch(batch: Buffer, require_keys: bool = False) -> tuple[BatchHeader, RecordSummary | None]:
    """The header of the one batch in a buffer, and what walking its records found; None for compressed ones.

    What a leader must know of a batch, in one call: possible header, right checksum, well-formed records.
    """
    view = memoryview(batch)
    if len(view) < HEADER_BYTES:
        raise CorruptBatch("the batch is incomplete")
    header = read_header(view)
    problem = header_problem(header)
    if problem is not None:
        raise CorruptBatch(problem)
    if header.size_bytes > len(view):
        raise CorruptBatch("the batch is incomplete")
    if header.size_bytes < len(view):
        raise InvalidRecords("bytes are left over after the last record")
    if _crc32c(view[CRC_START:]) != header.crc:
        raise CorruptBatch("the checksum does not match")
    if header.attributes & CODEC_MASK:
        return header, None
    return header, walk_records(view[HEADER_BYTES:], header.count, header.base_timestamp, require_keys)


def admit_batch(
    batch: Buffer,
    base_offset: int,
    leader_epoch: int,
    require_keys: bool,
    now_ms: int,
    before_max_ms: int,
    after_max_ms: int,
) -> AdmittedBatch | None:
    """Gives the one batch in a buffer its offsets and epoch, in place, if it can be stored just as it came.

    That is a good batch as clients make it, from offset 0 on: of uncompressed records outside a transaction, with their
    producer's timestamps, all of them within the bounds around `now_ms`, and the largest one stated rightly. None for
    any other, good or bad, and for a buffer that cannot be written to: nothing has changed then, and who asks must look
    closer.
    """
    view = memoryview(batch)
    try:
        header, summary = inspect_batch(view, require_keys)
    except CorruptBatch:
        return None
    if view.readonly or summary is None or header.base_offset or header.attributes:
        return None
    if header.count <= 0 or header.last_offset_delta != header.count - 1:
        return None
    if header.base_sequence < 0 and header.has_producer:
        return None
    if summary.max_timestamp != header.max_timestamp or summary.max_timestamp < NO_TIMESTAMP:
        return None
    if summary.max_timestamp > now_ms + after_max_ms:
        return None
    if summary.min_timestamp != NO_TIMESTAMP and summary.min_timestamp < now_ms - before_max_ms:
        return None
    header = assign(header, view, base_offset, leader_epoch)
    return header.last_offset, header.max_timestamp, header.count, header if header.has_producer else None


def header_problem(header: BatchHeader) -> str | None:
    """Why this cannot be the header of a batch, or None."""
    if header.magic != MAGIC:
        return "the magic is not 2"
    if header.length < HEADER_BYTES - PREFIX_BYTES:
        return "the batch length is less than a header"
    return None


def _content_problem(header: BatchHeader, batch: memoryview) -> str | None:
    if _crc32c(batch[CRC_START:]) != header.crc:
        return "the checksum does not match"
    if header.count < 0:
        return "the record count is negative"
    if header.last_offset_delta < 0:
        return "the last offset delta is negative"
    if header.attributes & CODEC_MASK:
        return None
    try:
        walk_records(
            batch[HEADER_BYTES:],
            header.count,
            header.base_timestamp,
            consecutive=False,
            last_offset_delta=header.last_offset_delta,
        )
    except InvalidRecords as error:
        return str(error)
    return None


def seek_offset(buffer: Buffer, target_offset: int) -> tuple[int, bool]:
    """Where the first batch begins that reaches `target_offset`, and whether it is in the buffer.

    When it is not, the position is that of the next header to look at, which may lie beyond the buffer. The
    buffer begins at a batch and need not end at one.
    """
    position = 0
    while len(buffer) - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        problem = header_problem(header)
        if problem is not None:
            raise CorruptBatch(problem)
        if header.last_offset >= target_offset:
            return position, True
        position += header.size_bytes
    return position, False


def floor_entry(entries: Buffer, entry_bytes: int, column: int, is_wide: bool, target: int) -> int:
    """The number of the last entry whose column is at most `target`, or -1.

    The entries have the same length and increase in that column, a signed number of 8 or 4 bytes that begins at its
    byte `column`.
    """
    unpack = _WIDE.unpack_from if is_wide else _NARROW.unpack_from
    count = len(entries) // entry_bytes
    return bisect_right(range(count), target, key=lambda slot: unpack(entries, slot * entry_bytes + column)[0]) - 1


def find_timestamp(
    records: Buffer, count: int, base_timestamp: int, target_timestamp: int, first_delta: int = 0
) -> tuple[int, int] | None:
    """(offset delta, timestamp) of the first record from `first_delta` on that is not older than the target.

    The records behind it are not looked at.
    """
    previous_delta = -1
    for record in parse_records(memoryview(records), count):
        if record.offset_delta <= previous_delta:
            raise InvalidRecords("the offset deltas do not increase")
        previous_delta = record.offset_delta
        timestamp = wrap_int64(base_timestamp + record.timestamp_delta)
        if record.offset_delta >= first_delta and timestamp >= target_timestamp:
            return record.offset_delta, timestamp
    return None
