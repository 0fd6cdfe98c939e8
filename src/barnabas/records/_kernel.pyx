# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The record kernel, compiled: what must touch every record, at the speed of memory.

Its twin in Python is `barnabas.records.reference`, which is also its specification; tests hold the two together. Use
either through `barnabas.records.kernel`.

- Bytes from a socket or a disk are read only by `_kernel_parse.h`, against an end pointer, or after a length check.
- Runs of `GIL_BYTES` and more are worked on without the GIL. The caller keeps the buffer unchanged meanwhile.
- No state but the checksum's tables, which are filled once on import.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from barnabas.base.errors import CorruptBatch, InvalidRecords
from barnabas.records.batch import BatchHeader
from barnabas.records.results import (
    COLUMN_BYTES_MAX,
    BatchScan,
    Columns,
    FilteredRecords,
    NoSuchPartition,
    PartitionedRows,
    RecordSummary,
)

# In C every name of ours begins with bk_: CPython's own headers declare a `write_varint`, too.
cdef extern from "_kernel_crc32c.h" nogil:
    void crc32c_prepare "bk_crc32c_prepare" ()
    uint32_t crc32c_compute "bk_crc32c_compute" (uint32_t crc, const uint8_t *at, size_t length)
    uint32_t crc32c_portable "bk_crc32c_portable" (uint32_t crc, const uint8_t *at, size_t length)

cdef extern from "_kernel_siphash.h" nogil:
    struct siphash "bk_siphash":
        uint64_t low
        uint64_t high
    siphash siphash_compute "bk_siphash_compute" (const uint64_t *secret, const uint8_t *at, size_t length)

cdef extern from "_kernel_parse.h" nogil:
    enum:
        FINE "BK_FINE"
        BAD_VARINT "BK_BAD_VARINT"
        BAD_LENGTH "BK_BAD_LENGTH"
        BAD_HEADER_COUNT "BK_BAD_HEADER_COUNT"
        BAD_HEADER "BK_BAD_HEADER"
        LENGTH_MISMATCH "BK_LENGTH_MISMATCH"
        NOT_CONSECUTIVE "BK_NOT_CONSECUTIVE"
        NOT_INCREASING "BK_NOT_INCREASING"
        BEYOND_LAST_OFFSET "BK_BEYOND_LAST_OFFSET"
        NEGATIVE_COUNT "BK_NEGATIVE_COUNT"
        LEFT_OVER "BK_LEFT_OVER"
        TOO_FEW "BK_TOO_FEW"
        MISSING_KEYS "BK_MISSING_KEYS"
        NO_MEMORY "BK_NO_MEMORY"
        BAD_CRC "BK_BAD_CRC"
        BAD_MAGIC "BK_BAD_MAGIC"
        BAD_BATCH_LENGTH "BK_BAD_BATCH_LENGTH"
        NEGATIVE_LAST_OFFSET "BK_NEGATIVE_LAST_OFFSET"
        BAD_OFFSETS "BK_BAD_OFFSETS"
        INCOMPLETE "BK_INCOMPLETE"
        BAD_COLUMNS "BK_BAD_COLUMNS"

    struct record "bk_record":
        const uint8_t *start
        const uint8_t *body
        const uint8_t *after_timestamp
        const uint8_t *key
        const uint8_t *value
        const uint8_t *headers
        const uint8_t *end
        int64_t timestamp_delta
        int32_t offset_delta
        int32_t key_length
        int32_t value_length
        int32_t header_count

    struct header "bk_header":
        const uint8_t *key
        const uint8_t *value
        int32_t key_length
        int32_t value_length

    struct progress "bk_progress":
        int64_t index
        int64_t next_delta
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t max_timestamp_delta
        int64_t min_timestamp

    struct growing "bk_growing":
        uint8_t *data
        size_t size
        size_t capacity

    int64_t wrapping_add "bk_wrapping_add" (int64_t a, int64_t b)
    int64_t wrapping_subtract "bk_wrapping_subtract" (int64_t a, int64_t b)
    int32_t unzigzag32 "bk_unzigzag32" (uint32_t bits)
    int64_t unzigzag64 "bk_unzigzag64" (uint64_t bits)
    const uint8_t *read_varint "bk_read_varint" (const uint8_t *at, const uint8_t *end, int32_t *value)
    int64_t varint_bytes "bk_varint_bytes" (int64_t value)
    uint8_t *write_varint "bk_write_varint" (uint8_t *at, int64_t value)
    const uint8_t *read_record_header "bk_read_record_header" (const uint8_t *at, const uint8_t *end, header *result)
    int parse_record "bk_parse_record" (const uint8_t *at, const uint8_t *end, record *result)
    int parse_record_body "bk_parse_record_body" (const uint8_t *at, int32_t length, record *result)
    const uint8_t *walk_usual_records "bk_walk_usual_records" (
        const uint8_t *at, const uint8_t *end, int64_t count, int64_t last_delta, int requires_keys, progress *seen
    )
    int reserve "bk_reserve" (growing *memory, size_t extra)
    void put_int64 "bk_put_int64" (growing *memory, int64_t value)
    void put_int32 "bk_put_int32" (growing *memory, int32_t value)
    void put_bytes "bk_put_bytes" (growing *memory, const uint8_t *data, size_t length)
    int64_t load_int64 "bk_load_int64" (const uint8_t *at)
    int32_t load_int32 "bk_load_int32" (const uint8_t *at)
    void store_big_endian "bk_store_big_endian" (uint8_t *at, uint64_t value, int count)
    uint64_t load_big_endian "bk_load_big_endian" (const uint8_t *at, int count)

crc32c_prepare()

include "../base/_named_tuples.pxi"

cdef enum:
    HEADER_BYTES = 61
    PREFIX_BYTES = 12
    CRC_START = 21
    MAGIC = 2
    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    RECORD_BYTES_MIN = 7
    REPORTED_INDEXES_MAX = 1000
    GIL_BYTES = 65536

cdef int64_t INT64_MAX = 0x7FFFFFFFFFFFFFFF

cdef dict PROBLEMS = {
    BAD_VARINT: "a varint is cut off or too long",
    BAD_LENGTH: "a length reaches beyond what contains it",
    BAD_HEADER_COUNT: "the header count is impossible",
    BAD_HEADER: "a header is cut off or has no key",
    LENGTH_MISMATCH: "the fields do not fill the record's length",
    NOT_CONSECUTIVE: "the offset deltas are not consecutive",
    NOT_INCREASING: "the offset deltas do not increase",
    BEYOND_LAST_OFFSET: "the offset delta is beyond the batch's last one",
    NEGATIVE_COUNT: "the record count is negative",
    LEFT_OVER: "bytes are left over after the last record",
    TOO_FEW: "the records end before their count is reached",
    MISSING_KEYS: "the record has no key",
    BAD_CRC: "the checksum does not match",
    BAD_MAGIC: "the magic is not 2",
    BAD_BATCH_LENGTH: "the batch length is less than a header",
    NEGATIVE_LAST_OFFSET: "the last offset delta is negative",
    BAD_OFFSETS: "the offsets are impossible",
}


cdef struct batch:
    int64_t base_offset
    int32_t length
    int32_t leader_epoch
    int32_t magic
    uint32_t crc
    int32_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t producer_epoch
    int32_t base_sequence
    int32_t count


cdef void load_batch(const uint8_t *at, batch *into) noexcept nogil:
    """The caller has proved that HEADER_BYTES are there."""
    into.base_offset = <int64_t>load_big_endian(at, 8)
    into.length = <int32_t>load_big_endian(at + 8, 4)
    into.leader_epoch = <int32_t>load_big_endian(at + 12, 4)
    into.magic = <signed char>at[16]
    into.crc = <uint32_t>load_big_endian(at + 17, 4)
    into.attributes = <short>load_big_endian(at + 21, 2)
    into.last_offset_delta = <int32_t>load_big_endian(at + 23, 4)
    into.base_timestamp = <int64_t>load_big_endian(at + 27, 8)
    into.max_timestamp = <int64_t>load_big_endian(at + 35, 8)
    into.producer_id = <int64_t>load_big_endian(at + 43, 8)
    into.producer_epoch = <short>load_big_endian(at + 51, 2)
    into.base_sequence = <int32_t>load_big_endian(at + 53, 4)
    into.count = <int32_t>load_big_endian(at + 57, 4)


cdef object raise_problem(int problem, int64_t index):
    if problem == NO_MEMORY:
        raise MemoryError
    if problem in (LEFT_OVER, NEGATIVE_COUNT, TOO_FEW):
        raise InvalidRecords(PROBLEMS[problem])
    if problem in (BAD_CRC, BAD_MAGIC, BAD_BATCH_LENGTH, NEGATIVE_LAST_OFFSET, BAD_OFFSETS):
        raise CorruptBatch(PROBLEMS[problem])
    raise InvalidRecords(f"record {index}: {PROBLEMS[problem]}")


def crc32c(data, initial: int = 0, *, portable: bool = False) -> int:
    """CRC-32C of `data`, continuing from `initial`. `portable` does without the processor's own instruction."""
    cdef Py_buffer view
    cdef uint32_t crc = initial
    cdef bint by_tables = portable
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            if by_tables:
                crc = crc32c_portable(crc, <const uint8_t *>view.buf, view.len)
            else:
                crc = crc32c_compute(crc, <const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return crc


include "_kernel_walk.pxi"
include "_kernel_scan.pxi"
include "_kernel_decode.pxi"
include "_kernel_encode.pxi"
include "_kernel_partition.pxi"
include "_kernel_compaction.pxi"
