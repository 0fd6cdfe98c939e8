# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""OffsetCommit from version 8 on, read from a whole frame and answered in C; as `_produce.pyx` says."""

from barnabas.wire.commit import NO_RETENTION, CommittedTopic, OffsetCommit, committed_frame

include "_frames.pxi"

cdef enum:
    API_KEY = 8
    VERSION_MIN = 8
    TOPIC_ID_FROM = 10
    VERSION_MAX = 10
    PARTITION_BYTES = 16
    PARTITION_REPLY_BYTES = 7
    AROUND_BYTES_MAX = 320
    RESULTS_MAX = 126


cdef object read_commit(object frame, cursor *at, frame_header *header):
    cdef bint has_id = header.version >= TOPIC_ID_FROM
    cdef const uint8_t *generation
    cdef const uint8_t *found
    cdef int64_t topic_count, partition_count, t, p
    cdef int64_t total = 0
    cdef list topics = []
    cdef list partitions
    group_id = take_text(at, True, False)
    generation = take(at, 4)
    member_id = take_text(at, True, False)
    instance_id = take_text(at, True, True)
    topic_count = take_count(at, True)
    for t in range(topic_count):
        topic = take_topic(at, True, has_id)
        partition_count = take_count(at, True)
        total += partition_count
        if total > FRAME_ELEMENTS_MAX:
            at.problem = DECLINED_LENGTH
        if at.problem:
            return None
        partitions = []
        for p in range(partition_count):
            found = take(at, PARTITION_BYTES)
            metadata = take_text(at, True, True)
            take_no_tags(at, True)
            if at.problem:
                return None
            partitions.append((int32_at(found), int64_at(found + 4), int32_at(found + 12), metadata))
        take_no_tags(at, True)
        topics.append(named_tuple(CommittedTopic, (topic, partitions)))
    take_no_tags(at, True)
    if at.problem:
        return None
    return named_tuple(OffsetCommit, (group_id, int32_at(generation), member_id, instance_id, NO_RETENTION, topics))


def decode_commit_frame(frame):
    """Version, correlation id, client id and the request; or the reason why it is not read here."""
    return decode_frame(frame, API_KEY, VERSION_MIN, VERSION_MAX, VERSION_MIN, read_commit)


cdef object plain_frame(int32_t correlation_id, int32_t throttle_ms, list results):
    """The whole frame of a flexible answer, length prefix included; None unless it is about one topic with few partitions."""
    cdef uint8_t frame[AROUND_BYTES_MAX + RESULTS_MAX * PARTITION_REPLY_BYTES]
    cdef uint8_t *at = frame + 4
    cdef Py_ssize_t count, i
    cdef list partitions
    cdef tuple one
    if len(results) != 1:
        return None
    topic, partitions = results[0]
    count = len(partitions)
    if count > RESULTS_MAX or not is_short(topic):
        return None
    at = put32(at, <uint32_t>correlation_id)
    at[0] = 0  # no tagged fields
    at = put32(at + 1, <uint32_t>throttle_ms)
    at[0] = 2  # one topic
    at = put_topic(at + 1, topic, True)
    at = put_varint(at, count + 1)
    for i in range(count):
        one = <tuple>partitions[i]
        at = put16(put32(at, <uint32_t><int32_t>one[0]), <uint32_t><int32_t>one[1])
        at[0] = 0
        at += 1
    at[0] = at[1] = 0
    at += 2
    put32(frame, <uint32_t>(at - frame - 4))
    return PyBytes_FromStringAndSize(<const char *>frame, at - frame)


def encode_committed_frame(int32_t version, int32_t correlation_id, int32_t throttle_ms, list results):
    """The whole frame of the answer, length prefix included."""
    frame = plain_frame(correlation_id, throttle_ms, results) if version >= VERSION_MIN else None
    return committed_frame(version, correlation_id, throttle_ms, results) if frame is None else frame
