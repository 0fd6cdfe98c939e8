"""Whole runs of batches to columns and back, compressed ones included.

The kernel does the work on plain bytes; this module adds what it leaves to Python: decompression, compression
and batch headers. `barnabas.records.arrow` wraps the columns for pyarrow.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from barnabas.base.buffers import Buffer
from barnabas.base.ids import NO_EPOCH, NO_PRODUCER, NO_SEQUENCE
from barnabas.records.batch import (
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    Codec,
    advance_sequence,
    read_header,
)
from barnabas.records.checksum import with_records
from barnabas.records.compression import compress, decompress
from barnabas.records.kernel import ColumnDecoder, Columns, encode_records

RECORDS_BYTES_MAX: Final = 256 << 20
"""The records of one batch may decompress to this size; more counts as a bomb."""

NO_PRODUCER_EPOCH: Final = -1


class DecodedRun(NamedTuple):
    columns: Columns
    consumed_bytes: int
    """Where to go on: less than the run has when it ends within a batch or when the columns were full."""


def decode_run(
    run: Buffer,
    *,
    first_offset: int = 0,
    end_offset: int = 2**63 - 1,
    with_headers: bool = True,
    aborted: Iterable[tuple[int, int, int]] = (),
    verify: bool = True,
) -> DecodedRun:
    """The records of a run of batches with offsets in [first_offset, end_offset) as columns."""
    decoder = ColumnDecoder(first_offset, end_offset, with_headers, verify=verify)
    consumed_bytes = append_run(decoder, run, aborted)
    return DecodedRun(decoder.finish(), consumed_bytes)


def append_run(
    decoder: ColumnDecoder,
    run: Buffer,
    aborted: Iterable[tuple[int, int, int]] = (),
    records_bytes_max: int = RECORDS_BYTES_MAX,
) -> int:
    """Decodes batches from the start of `run` and returns how many bytes they have.

    It stops before a batch that is incomplete or that the columns have no room for, and raises `CorruptBatch`
    at a bad one, when those before it have been taken. `aborted` names the (producer id, first offset, last
    offset) of transactions whose records are left out.
    """
    view = memoryview(run)
    transactions = list(aborted)
    position = 0
    while position < len(view):
        taken_bytes = decoder.append_run(view[position:], transactions)
        position += taken_bytes
        if taken_bytes:
            continue
        if len(view) - position < HEADER_BYTES:
            break
        header = read_header(view, position)
        end = position + header.size_bytes
        if end > len(view) or header.codec_number == Codec.NONE:
            break
        records = decompress(header.codec_number, view[position + HEADER_BYTES : end], records_bytes_max)
        if not decoder.append_records(records, header):
            break
        position = end
    return position


class RecordsSection(NamedTuple):
    """Encoded records that have no batch header yet."""

    records: bytes
    count: int  # type: ignore[assignment]  # hides a method of tuple that nobody needs here
    base_timestamp: int
    max_timestamp: int


def encode_sections(
    columns: Columns, *, max_batch_bytes: int, start: int = 0, stop: int | None = None, rows: Buffer | None = None
) -> Iterator[RecordsSection]:
    """Rows [start, stop) as the records of batches of at most `max_batch_bytes`; a larger row gets its own.

    With `rows` (int32 each) these are the rows to take, in this order, and `start` and `stop` are places in it.
    """
    stop = columns.count if stop is None else stop
    timestamps = memoryview(columns.timestamps).cast("B")[: columns.count * 8].cast("q")
    order = None if rows is None else memoryview(rows).cast("B").cast("i")
    while start < stop:
        base_timestamp = timestamps[start if order is None else order[start]]
        records, count, max_timestamp = encode_records(
            columns, start, stop, base_timestamp, max_batch_bytes - HEADER_BYTES, rows
        )
        yield RecordsSection(records, count, base_timestamp, max_timestamp)
        start += count


def build_batch(
    section: RecordsSection,
    *,
    codec: Codec = Codec.NONE,
    compression_level: int | None = None,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> bytearray:
    """A batch of these records, with base offset 0, which the log replaces."""
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=NO_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=int(codec) | (TRANSACTIONAL if is_transactional else 0),
        last_offset_delta=section.count - 1,
        base_timestamp=section.base_timestamp,
        max_timestamp=section.max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=section.count,
    )
    records = section.records
    return with_records(header, records if codec is Codec.NONE else compress(codec, records, compression_level))


def encode_batches(
    columns: Columns,
    *,
    codec: Codec = Codec.NONE,
    compression_level: int | None = None,
    max_batch_bytes: int,
    start: int = 0,
    stop: int | None = None,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> Iterator[bytearray]:
    """Rows [start, stop) as batches of at most `max_batch_bytes` before compression; a larger row gets its
    own.

    Every batch has base offset 0, which the log replaces. The sequence counts on from batch to batch.
    """
    for section in encode_sections(columns, max_batch_bytes=max_batch_bytes, start=start, stop=stop):
        yield build_batch(
            section,
            codec=codec,
            compression_level=compression_level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
        if base_sequence != NO_SEQUENCE:
            base_sequence = advance_sequence(base_sequence, section.count)
