# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The Fetch request that readers of one partition send, read and answered in C.

As `_sole_produce.pyx`: everything but this one shape, right or wrong, is None here and for the general decoders to
judge. `barnabas.wire.sole_fetch` says what the shape is.
"""

include "_sole_frames.pxi"

cdef enum:
    API_KEY = 1
    VERSION_MIN = 12
    TOPIC_ID_FROM = 13
    REPLICA_STATE_FROM = 15
    VERSION_MAX = 18
    START_BYTES = 21
    PARTITION_BYTES = 32
    HEAD_BYTES_MAX = 384
    TAIL_BYTES = 3


cdef struct sole:
    frame_header header
    const uint8_t *start
    const uint8_t *topic
    int32_t topic_bytes
    const uint8_t *partition


cdef bint read_frame(const uint8_t *data, int64_t size, sole *found) noexcept nogil:
    cdef int64_t position = read_flexible_header(data, size, API_KEY, VERSION_MIN, VERSION_MAX, &found.header)
    if position < 0:
        return False
    if found.header.version < REPLICA_STATE_FROM:
        if size - position < 4 or int32_at(data + position) != -1:  # a replica's
            return False
        position += 4
    if size - position < START_BYTES + 1 or data[position + 12] > 1 or data[position + START_BYTES] != 2:  # one topic
        return False
    found.start = data + position
    position += START_BYTES + 1
    if found.header.version >= TOPIC_ID_FROM:
        found.topic_bytes = UUID_BYTES
    else:
        if position >= size or data[position] < 2 or data[position] > ONE_BYTE_LENGTH_MAX:
            return False
        found.topic_bytes = data[position] - 1
        position += 1
    found.topic = data + position
    position += found.topic_bytes
    # One partition, its tagged fields and the topic's, no forgotten topics, a rack.
    if size - position < 1 + PARTITION_BYTES + 4 or data[position] != 2:
        return False
    found.partition = data + position + 1
    position += 1 + PARTITION_BYTES
    if data[position] or data[position + 1] or data[position + 2] != 1:
        return False
    position += 3
    if data[position] == 0 or data[position] > ONE_BYTE_LENGTH_MAX:
        return False
    position += data[position]
    return position + 1 == size and data[position] == 0


cdef class Fetch:
    """A `SoleFetch`."""

    cdef readonly int32_t version, correlation_id, wait_ms, bytes_min, bytes_max, isolation_level
    cdef readonly int32_t session_id, session_epoch, index, leader_epoch, partition_bytes_max
    cdef readonly int64_t offset
    cdef readonly object client_id, topic


def read_sole_fetch(frame):
    """What a request is, if it is the usual Fetch; else None."""
    cdef Py_buffer view
    cdef sole found
    cdef const uint8_t *start
    cdef const uint8_t *partition
    cdef Fetch fetch
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        if not read_frame(<const uint8_t *>view.buf, view.len, &found):
            return None
        start = found.start
        partition = found.partition
        # A last fetched epoch is to be compared with the log's history, and a negative limit is refused.
        if int32_at(partition + 16) >= 0 or int32_at(partition + 28) < 0:
            return None
        fetch = Fetch.__new__(Fetch)
        fetch.version = found.header.version
        fetch.correlation_id = found.header.correlation_id
        fetch.client_id = PyUnicode_DecodeUTF8(
            <const char *>view.buf + HEADER_START_BYTES, found.header.client_id_bytes, "replace"
        )
        if found.header.version >= TOPIC_ID_FROM:
            fetch.topic = PyBytes_FromStringAndSize(<const char *>found.topic, UUID_BYTES)
        else:
            fetch.topic = PyUnicode_DecodeUTF8(<const char *>found.topic, found.topic_bytes, "replace")
        fetch.wait_ms = int32_at(start)
        fetch.bytes_min = int32_at(start + 4)
        fetch.bytes_max = int32_at(start + 8)
        fetch.isolation_level = start[12]
        fetch.session_id = int32_at(start + 13)
        fetch.session_epoch = int32_at(start + 17)
        fetch.index = int32_at(partition)
        fetch.leader_epoch = int32_at(partition + 4)
        fetch.offset = int64_at(partition + 8)
        fetch.partition_bytes_max = int32_at(partition + 28)
        return fetch
    finally:
        PyBuffer_Release(&view)


def write_fetch_reply(
    version: int,
    correlation_id: int,
    session_id: int,
    topic,
    index: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    has_aborted: bool,
    bytes records,
    records_bytes: int,
) -> bytes:
    """The frame, length prefix included, of the answer to such a request that succeeded.

    Without `records` it ends before them: so many bytes of records follow, and then `FETCH_REPLY_END`. `has_aborted`
    says that the list of aborted transactions, which is empty, is there.
    """
    cdef uint8_t head[HEAD_BYTES_MAX]
    cdef uint8_t *at = head + 4
    cdef Py_ssize_t topic_bytes = UUID_BYTES
    cdef uint64_t size = records_bytes
    cdef uint64_t length = size + 1
    cdef Py_ssize_t head_bytes
    cdef const char *name
    cdef bytes frame
    cdef char *into
    if version >= TOPIC_ID_FROM:
        name = PyBytes_AS_STRING(topic)
    else:
        name = PyUnicode_AsUTF8AndSize(topic, &topic_bytes)
    assert topic_bytes <= NAME_BYTES_MAX and size < 0x7FFFFFFF - HEAD_BYTES_MAX
    assert records is None or <uint64_t>len(records) == size
    at = put32(at, <uint32_t><int32_t>correlation_id)
    at[0] = 0  # no tagged fields
    at = put16(put32(at + 1, 0), 0)  # no throttling, no error
    at = put32(at, <uint32_t><int32_t>session_id)
    at[0] = 2  # one topic
    at += 1
    if version < TOPIC_ID_FROM:
        at = put_length(at, topic_bytes)
    memcpy(at, name, topic_bytes)
    at += topic_bytes
    at[0] = 2  # one partition
    at = put16(put32(at + 1, <uint32_t><int32_t>index), 0)
    at = put64(put64(at, <uint64_t><int64_t>high_watermark), <uint64_t><int64_t>last_stable_offset)
    at = put64(at, <uint64_t><int64_t>log_start_offset)
    at[0] = 1 if has_aborted else 0
    at = put32(at + 1, 0xFFFFFFFF)  # no preferred replica
    while length >= 0x80:
        at[0] = <uint8_t>(length | 0x80)
        at += 1
        length >>= 7
    at[0] = <uint8_t>length
    at += 1
    head_bytes = at - head
    put32(head, <uint32_t>(head_bytes - 4 + size + TAIL_BYTES))
    if records is None:
        return PyBytes_FromStringAndSize(<const char *>head, head_bytes)
    frame = PyBytes_FromStringAndSize(NULL, head_bytes + size + TAIL_BYTES)
    into = PyBytes_AS_STRING(frame)
    memcpy(into, head, head_bytes)
    memcpy(into + head_bytes, PyBytes_AS_STRING(records), size)
    into[head_bytes + size] = into[head_bytes + size + 1] = into[head_bytes + size + 2] = 0
    return frame
