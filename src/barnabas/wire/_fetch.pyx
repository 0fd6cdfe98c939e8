# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Fetch from version 12 on, read from a whole frame and answered in C; as `_produce.pyx` says.

The requests of consumers are read here, with a session (KIP-227) or without; what declines are long ones, tagged fields
and topics to forget. The answers are those with one partition that has no error, or with none.
"""

from barnabas.wire.fetch import (
    NO_DIRECTORY,
    NO_DIVERGENCE,
    NO_HIGH_WATERMARK,
    Fetch,
    PartitionKey,
    Wanted,
    fetched_frame,
)
from barnabas.wire.leaders import NO_LEADER

include "_frames.pxi"

cdef bytes FRAME_END = bytes(3)
"""What follows the records of a fetched partition: no tagged fields of the partition, of the topic and of the answer."""

cdef enum:
    API_KEY = 1
    VERSION_MIN = 12
    TOPIC_ID_FROM = 13
    REPLICA_STATE_FROM = 15
    VERSION_MAX = 18
    START_BYTES = 21
    WANTED_BYTES = 32
    HEAD_BYTES_MAX = 384
    TAIL_BYTES = 3
    AROUND_BYTES_MAX = 64


cdef object read_fetch(object frame, cursor *at, frame_header *header):
    cdef bint has_id = header.version >= TOPIC_ID_FROM
    cdef const uint8_t *start
    cdef const uint8_t *found
    cdef int32_t replica_id = -1
    cdef int64_t topic_count, partition_count, t, p
    cdef list wanted = []
    if header.version < REPLICA_STATE_FROM:
        found = take(at, 4)
        if found == NULL:
            return None
        replica_id = int32_at(found)
    start = take(at, START_BYTES)
    topic_count = take_count(at, True)
    for t in range(topic_count):
        topic = take_topic(at, True, has_id)
        partition_count = take_count(at, True)
        if at.problem:
            return None
        if len(wanted) + partition_count > FRAME_ELEMENTS_MAX:
            at.problem = DECLINED_LENGTH
            return None
        for p in range(partition_count):
            found = take(at, WANTED_BYTES)
            take_no_tags(at, True)
            if at.problem:
                return None
            wanted.append(
                named_tuple(
                    Wanted,
                    (
                        named_tuple(PartitionKey, (topic, int32_at(found))),
                        int64_at(found + 8),
                        int32_at(found + 28),
                        int32_at(found + 4),
                        int32_at(found + 16),
                        int64_at(found + 20),
                        NO_DIRECTORY,
                        NO_HIGH_WATERMARK,
                    ),
                )
            )
        take_no_tags(at, True)
    if take_count(at, True) != 0:
        at.problem = DECLINED_FIELD  # topics to forget
    rack_id = take_text(at, True, False)
    take_no_tags(at, True)
    if at.problem:
        return None
    return named_tuple(
        Fetch,
        (
            int32_at(start),
            int32_at(start + 4),
            int32_at(start + 8),
            <int8_t>start[12],
            int32_at(start + 13),
            int32_at(start + 17),
            wanted,
            (),
            rack_id,
            replica_id,
            -1,
            None,
        ),
    )


def decode_fetch_frame(frame):
    """Version, correlation id, client id and the request; or the reason why it is not read here."""
    return decode_frame(frame, API_KEY, VERSION_MIN, VERSION_MAX, VERSION_MIN, read_fetch)


cdef inline uint8_t *put_start(
    uint8_t *at, int32_t correlation_id, int32_t throttle_ms, int32_t session_id
) noexcept nogil:
    at = put32(at, <uint32_t>correlation_id)
    at[0] = 0  # no tagged fields
    at = put16(put32(at + 1, <uint32_t>throttle_ms), 0)  # no error
    return put32(at, <uint32_t>session_id)


cdef object empty_frame(int32_t correlation_id, int32_t throttle_ms, int32_t session_id):
    """The frame of an answer that has no partition: nothing is new to a session's client."""
    cdef uint8_t frame[AROUND_BYTES_MAX]
    cdef uint8_t *at = put_start(frame + 4, correlation_id, throttle_ms, session_id)
    at[0] = 1  # no topic
    at[1] = 0
    at += 2
    put32(frame, <uint32_t>(at - frame - 4))
    return PyBytes_FromStringAndSize(<const char *>frame, at - frame)


cdef object frame_of_one(
    int32_t version, int32_t correlation_id, int32_t throttle_ms, int32_t session_id, object key, object result
):
    """The frame of an answer with one partition; None where that has more than numbers and records.

    It is whole when the records are bytes. Where they lie in a file it ends before them: the range follows, and then
    `FRAME_END`.
    """
    cdef uint8_t head[HEAD_BYTES_MAX]
    cdef uint8_t *at
    cdef uint64_t size = 0
    cdef Py_ssize_t head_bytes
    cdef bytes frame
    cdef char *into
    cdef tuple found = <tuple>result  # a cast, because a typed argument must be exactly a tuple, not a named one
    topic, index = (<tuple>key)[0], (<tuple>key)[1]
    records = found[0]
    aborted = found[4]
    if found[5] or aborted or found[6] is not NO_DIVERGENCE or found[7] is not NO_LEADER or not is_short(topic):
        return None
    is_whole = records is None or isinstance(records, bytes)
    if records is not None:
        size = <uint64_t>(len(<bytes>records) if is_whole else records.length)
    if size >= 0x7FFFFFFF - HEAD_BYTES_MAX:
        return None
    at = put_start(head + 4, correlation_id, throttle_ms, session_id)
    at[0] = 2  # one topic
    at = put_topic(at + 1, topic, True)
    at[0] = 2  # one partition
    at = put16(put32(at + 1, <uint32_t><int32_t>index), 0)
    at = put64(at, <uint64_t><int64_t>found[1])
    at = put64(at, <uint64_t><int64_t>found[2])
    at = put64(at, <uint64_t><int64_t>found[3])
    at[0] = 0 if aborted is None else 1
    at = put32(at + 1, <uint32_t><int32_t>found[8])
    at = put_varint(at, size + 1)
    head_bytes = at - head
    put32(head, <uint32_t>(head_bytes - 4 + size + TAIL_BYTES))
    if not is_whole:
        return PyBytes_FromStringAndSize(<const char *>head, head_bytes)
    frame = PyBytes_FromStringAndSize(NULL, head_bytes + size + TAIL_BYTES)
    into = PyBytes_AS_STRING(frame)
    memcpy(into, head, head_bytes)
    if size:
        memcpy(into + head_bytes, PyBytes_AS_STRING(records), size)
    into[head_bytes + size] = into[head_bytes + size + 1] = into[head_bytes + size + 2] = 0
    return frame


def encode_fetched_frame(
    int32_t version,
    int32_t correlation_id,
    int32_t throttle_ms,
    int32_t session_id,
    results,
    endpoints=(),
    int32_t error_code=0,
):
    """The frame of the answer, length prefix included, whole or in pieces."""
    cdef Py_ssize_t count = len(results)
    if version >= VERSION_MIN and not error_code and count <= 1 and not endpoints:
        if not count:
            return empty_frame(correlation_id, throttle_ms, session_id)
        key, result = results[0]
        frame = frame_of_one(version, correlation_id, throttle_ms, session_id, key, result)
        if frame is not None:
            records = (<tuple>result)[0]
            return frame if records is None or isinstance(records, bytes) else [frame, records, FRAME_END]
    return fetched_frame(version, correlation_id, throttle_ms, session_id, results, endpoints, error_code)
