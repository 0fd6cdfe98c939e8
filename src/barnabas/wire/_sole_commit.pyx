# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The OffsetCommit request that clients send most, read and answered in C: offsets of one topic, without notes.

As `_sole_produce.pyx`: everything but this one shape, right or wrong, is None here and for the general decoders to
judge. `barnabas.wire.sole_commit` says what the shape is.
"""

include "_sole_frames.pxi"

cdef enum:
    API_KEY = 8
    VERSION_MIN = 8
    TOPIC_ID_FROM = 10
    VERSION_MAX = 10
    PARTITION_BYTES = 18
    PARTITION_REPLY_BYTES = 7
    REPLY_AROUND_BYTES = 300
    PARTITIONS_MAX = ONE_BYTE_LENGTH_MAX - 1


cdef struct text:
    int64_t start
    int32_t length


cdef struct sole:
    frame_header header
    text group_id
    int32_t generation
    text member_id
    text instance_id  # of length -1 when it is null
    text topic
    int64_t partitions_start
    int32_t partition_count


cdef inline int64_t read_text(const uint8_t *data, int64_t size, int64_t position, text *found) noexcept nogil:
    """Where the string ends whose length is in one byte; -1 if there is none such."""
    if position < 0 or position >= size or data[position] == 0 or data[position] > ONE_BYTE_LENGTH_MAX:
        return -1
    found.start = position + 1
    found.length = data[position] - 1
    position += data[position]
    return position if position <= size else -1


cdef bint read_partitions(const uint8_t *data, int64_t size, sole *found) noexcept nogil:
    """Whether all that is left is partitions with empty or null metadata, and three empty sets of tagged fields."""
    cdef int64_t position = found.partitions_start
    cdef int32_t i
    if size - position != <int64_t>found.partition_count * PARTITION_BYTES + 2:
        return False
    for i in range(found.partition_count):
        if data[position + 16] > 1 or data[position + 17]:
            return False
        position += PARTITION_BYTES
    return not (data[position] or data[position + 1])


cdef bint read_frame(const uint8_t *data, int64_t size, sole *found) noexcept nogil:
    cdef int64_t position = read_flexible_header(data, size, API_KEY, VERSION_MIN, VERSION_MAX, &found.header)
    position = read_text(data, size, position, &found.group_id)
    if position < 0 or size - position < 4:
        return False
    found.generation = int32_at(data + position)
    position = read_text(data, size, position + 4, &found.member_id)
    if position < 0 or position >= size:
        return False
    if data[position]:
        position = read_text(data, size, position, &found.instance_id)
    else:
        found.instance_id.start = 0
        found.instance_id.length = -1
        position += 1
    if position < 0 or position >= size or data[position] != 2:  # one topic
        return False
    position += 1
    if found.header.version >= TOPIC_ID_FROM:
        found.topic.start = position
        found.topic.length = UUID_BYTES
        position += UUID_BYTES
    else:
        position = read_text(data, size, position, &found.topic)
    if position < 0 or position >= size or data[position] < 2 or data[position] > ONE_BYTE_LENGTH_MAX:
        return False
    found.partition_count = data[position] - 1
    found.partitions_start = position + 1
    return read_partitions(data, size, found)


cdef inline object text_in(const uint8_t *data, text found):
    return PyUnicode_DecodeUTF8(<const char *>data + found.start, found.length, "replace")


def read_sole_commit(frame):
    """What a request is, if it is the usual OffsetCommit; else None."""
    cdef Py_buffer view
    cdef sole found
    cdef const uint8_t *data
    cdef const uint8_t *at
    cdef int32_t i
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        data = <const uint8_t *>view.buf
        if not read_frame(data, view.len, &found):
            return None
        if found.header.version >= TOPIC_ID_FROM:
            topic = PyBytes_FromStringAndSize(<const char *>data + found.topic.start, UUID_BYTES)
        else:
            topic = text_in(data, found.topic)
        partitions = []
        at = data + found.partitions_start
        for i in range(found.partition_count):
            partitions.append((int32_at(at), int64_at(at + 4), int32_at(at + 12)))
            at += PARTITION_BYTES
        return (
            found.header.version,
            found.header.correlation_id,
            text_in(data, found.group_id),
            found.generation,
            text_in(data, found.member_id),
            None if found.instance_id.length < 0 else text_in(data, found.instance_id),
            topic,
            partitions,
        )
    finally:
        PyBuffer_Release(&view)


def write_commit_reply(version: int, correlation_id: int, topic, list partitions, list errors) -> bytes:
    """The whole frame, length prefix included, of the answer to such a request: an error for each partition, or none."""
    cdef uint8_t frame[REPLY_AROUND_BYTES + PARTITIONS_MAX * PARTITION_REPLY_BYTES]
    cdef uint8_t *at = frame + 4
    cdef Py_ssize_t topic_bytes = UUID_BYTES
    cdef Py_ssize_t count = len(partitions)
    cdef Py_ssize_t i
    cdef const char *name
    cdef bint has_id = version >= TOPIC_ID_FROM
    if has_id:
        name = PyBytes_AS_STRING(topic)
    else:
        name = PyUnicode_AsUTF8AndSize(topic, &topic_bytes)
    assert topic_bytes <= NAME_BYTES_MAX and count <= PARTITIONS_MAX and count == len(errors)
    at = put32(at, <uint32_t><int32_t>correlation_id)
    at[0] = 0  # no tagged fields
    at = put32(at + 1, 0)  # no throttling
    at[0] = 2  # one topic
    at += 1
    if not has_id:
        at = put_length(at, topic_bytes)
    memcpy(at, name, topic_bytes)
    at = put_length(at + topic_bytes, count)
    for i in range(count):
        at = put16(put32(at, <uint32_t><int32_t>(<tuple>partitions[i])[0]), <uint32_t><int32_t>errors[i])
        at[0] = 0
        at += 1
    at[0] = at[1] = 0
    at += 2
    put32(frame, <uint32_t>(at - frame - 4))
    return PyBytes_FromStringAndSize(<const char *>frame, at - frame)
