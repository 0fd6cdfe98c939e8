# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The Produce request that clients send most, read and answered in C: one batch for one partition.

`read_sole_produce` knows nothing but this one shape and says None to everything else, right or wrong; then the general
decoders look at the frame. So nothing is refused here, and everything that is read is checked against the frame's end.
`barnabas.wire.sole_produce` says what the shape is.
"""

include "_sole_frames.pxi"

cdef enum:
    VERSION_MIN = 3
    ZSTD_FROM = 7
    LOG_START_FROM = 5
    RECORD_ERRORS_FROM = 8
    FLEXIBLE_FROM = 9
    TOPIC_ID_FROM = 13
    VERSION_MAX = 13
    BATCH_HEADER_BYTES = 61
    PREFIX_BYTES = 12
    MAGIC = 2
    CODEC_MASK = 0x07
    ZSTD = 4
    TRANSACTIONAL = 0x10
    REPLY_BYTES_MAX = 384


cdef struct sole:
    int32_t version
    int32_t correlation_id
    int32_t client_id_start
    int32_t client_id_bytes
    int32_t acks
    int32_t topic_start
    int32_t topic_bytes
    int32_t index
    int64_t records_start
    int64_t records_end


cdef inline bint is_for_the_log(const uint8_t *records, int64_t size, int32_t version) noexcept nogil:
    """Whether this is one whole batch that no rule of the protocol's forbids; the log looks at all the rest."""
    cdef int i
    cdef int32_t attributes
    if size < BATCH_HEADER_BYTES or records[16] != MAGIC or int32_at(records + 8) != size - PREFIX_BYTES:
        return False
    for i in range(8):
        if records[i]:
            return False
    attributes = int16_at(records + 21)
    if attributes & TRANSACTIONAL:
        return False
    return version >= ZSTD_FROM or (attributes & CODEC_MASK) != ZSTD


cdef bint read_flexible(const uint8_t *data, int64_t size, int64_t position, sole *found) noexcept nogil:
    cdef uint64_t length
    cdef int shift
    # Null transactional id, acks, timeout, one topic.
    if size - position < 8 or data[position] != 0 or data[position + 7] != 2:
        return False
    found.acks = int16_at(data + position + 1)
    position += 8
    if found.version >= TOPIC_ID_FROM:
        found.topic_bytes = UUID_BYTES
    else:
        if size - position < 1 or data[position] < 2 or data[position] >= 0x80:
            return False
        found.topic_bytes = data[position] - 1
        position += 1
    found.topic_start = <int32_t>position
    position += found.topic_bytes
    if size - position < 5 or data[position] != 2:
        return False
    found.index = int32_at(data + position + 1)
    position += 5
    length = 0
    shift = 0
    while True:
        if position >= size or shift > 28:
            return False
        length |= <uint64_t>(data[position] & 0x7F) << shift
        shift += 7
        position += 1
        if data[position - 1] < 0x80:
            break
    if length < 2:
        return False
    found.records_start = position
    found.records_end = position + <int64_t>length - 1
    # Then only the three empty sets of tagged fields.
    if size - found.records_end != 3:
        return False
    position = found.records_end
    return not (data[position] or data[position + 1] or data[position + 2])


cdef bint read_legacy(const uint8_t *data, int64_t size, int64_t position, sole *found) noexcept nogil:
    if size - position < 14 or int16_at(data + position) != -1 or int32_at(data + position + 8) != 1:
        return False
    found.acks = int16_at(data + position + 2)
    found.topic_bytes = int16_at(data + position + 12)
    position += 14
    if found.topic_bytes < 1 or size - position < found.topic_bytes + 12:
        return False
    found.topic_start = <int32_t>position
    position += found.topic_bytes
    if int32_at(data + position) != 1:
        return False
    found.index = int32_at(data + position + 4)
    found.records_start = position + 12
    found.records_end = found.records_start + int32_at(data + position + 8)
    return int32_at(data + position + 8) > 0 and found.records_end == size


cdef bint read_frame(const uint8_t *data, int64_t size, sole *found) noexcept nogil:
    cdef int64_t position
    if size < HEADER_START_BYTES or size > 0x7FFFFFFF or data[0] or data[1]:
        return False
    found.version = int16_at(data + 2)
    if found.version < VERSION_MIN or found.version > VERSION_MAX:
        return False
    found.correlation_id = int32_at(data + 4)
    found.client_id_bytes = int16_at(data + 8)
    found.client_id_start = HEADER_START_BYTES
    if found.client_id_bytes < 0:
        found.client_id_bytes = 0
    position = HEADER_START_BYTES + found.client_id_bytes
    if found.version >= FLEXIBLE_FROM:
        if size - position < 1 or data[position] or not read_flexible(data, size, position + 1, found):
            return False
    elif not read_legacy(data, size, position, found):
        return False
    if found.acks != 1 and found.acks != -1:
        return False
    if found.topic_bytes > NAME_BYTES_MAX:
        return False
    return is_for_the_log(data + found.records_start, found.records_end - found.records_start, found.version)


def read_sole_produce(frame):
    """What a request is, if it is the usual Produce; else None."""
    cdef Py_buffer view
    cdef sole found
    cdef const char *data
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        if not read_frame(<const uint8_t *>view.buf, view.len, &found):
            return None
        data = <const char *>view.buf
        client_id = PyUnicode_DecodeUTF8(data + found.client_id_start, found.client_id_bytes, "replace")
        if found.version >= TOPIC_ID_FROM:
            topic = PyBytes_FromStringAndSize(data + found.topic_start, found.topic_bytes)
        else:
            topic = PyUnicode_DecodeUTF8(data + found.topic_start, found.topic_bytes, "replace")
    finally:
        PyBuffer_Release(&view)
    return (
        found.version,
        found.correlation_id,
        client_id,
        found.acks,
        topic,
        found.index,
        found.records_start,
        found.records_end,
    )


def write_sole_reply(
    version: int,
    correlation_id: int,
    topic,
    index: int,
    base_offset: int,
    append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    """The whole frame, length prefix included, of the answer to a request that succeeded."""
    cdef uint8_t frame[REPLY_BYTES_MAX]
    cdef uint8_t *at = frame + 4
    cdef int32_t served = version
    cdef bint is_flexible = served >= FLEXIBLE_FROM
    cdef Py_ssize_t topic_bytes = UUID_BYTES
    cdef const char *name
    if served >= TOPIC_ID_FROM:
        name = PyBytes_AS_STRING(topic)
    else:
        name = PyUnicode_AsUTF8AndSize(topic, &topic_bytes)
    assert topic_bytes <= NAME_BYTES_MAX
    at = put32(at, <uint32_t><int32_t>correlation_id)
    if is_flexible:
        at[0] = 0
        at[1] = 2
        at += 2
        if served < TOPIC_ID_FROM:
            at = put_length(at, topic_bytes)
    else:
        at = put16(put32(at, 1), <uint32_t>topic_bytes)
    memcpy(at, name, topic_bytes)
    at += topic_bytes
    if is_flexible:
        at[0] = 2
        at += 1
    else:
        at = put32(at, 1)
    at = put16(put32(at, <uint32_t><int32_t>index), 0)
    at = put64(put64(at, <uint64_t><int64_t>base_offset), <uint64_t><int64_t>append_time_ms)
    if served >= LOG_START_FROM:
        at = put64(at, <uint64_t><int64_t>log_start_offset)
    if is_flexible:  # no record errors, no message, no tagged fields of the partition and of the topic
        at[0] = 1
        at[1] = at[2] = at[3] = 0
        at += 4
    elif served >= RECORD_ERRORS_FROM:
        at = put16(put32(at, 0), 0xFFFF)
    at = put32(at, 0)
    if is_flexible:
        at[0] = 0
        at += 1
    put32(frame, <uint32_t>(at - frame - 4))
    return PyBytes_FromStringAndSize(<const char *>frame, at - frame)
