# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Produce, read from a whole frame and answered in C.

`decode_produce_frame` makes the request object of `barnabas.wire.produce`, whose codec is the reference, or tells why it
declines the frame (`barnabas.wire.codecs.Declined`); then the reference reads it, and says what is wrong with it if
something is. So nothing is refused here, and everything that is read is checked against the frame's end.
"""

from barnabas.wire.leaders import NO_LEADER
from barnabas.wire.produce import Produce, ProduceBatch, produced_frame

include "_frames.pxi"

cdef enum:
    API_KEY = 0
    VERSION_MIN = 3
    LOG_START_FROM = 5
    RECORD_ERRORS_FROM = 8
    FLEXIBLE_FROM = 9
    TOPIC_ID_FROM = 13
    VERSION_MAX = 13
    RESULTS_MAX = 16
    RESULT_BYTES_MAX = 320
    AROUND_BYTES_MAX = 64


cdef object read_produce(object frame, cursor *at, frame_header *header):
    cdef bint is_flexible = header.is_flexible
    cdef bint has_id = header.version >= TOPIC_ID_FROM
    cdef const uint8_t *start
    cdef const uint8_t *found
    cdef int64_t topic_count, partition_count, length, records_start, t, p
    cdef int32_t index
    cdef list batches = []
    if take_length(at, is_flexible, 2) != -1:
        at.problem = DECLINED_FIELD  # a transactional id
    start = take(at, 6)
    topic_count = take_count(at, is_flexible)
    for t in range(topic_count):
        topic = take_topic(at, is_flexible, has_id)
        partition_count = take_count(at, is_flexible)
        if at.problem:
            return None
        if len(batches) + partition_count > FRAME_ELEMENTS_MAX:
            at.problem = DECLINED_LENGTH
            return None
        for p in range(partition_count):
            found = take(at, 4)
            if found == NULL:
                return None
            index = int32_at(found)
            length = take_length(at, is_flexible, 4)
            records_start = at.position
            if length >= 0 and take(at, length) == NULL:
                return None
            take_no_tags(at, is_flexible)
            if at.problem:
                return None
            records = None if length < 0 else frame[records_start : records_start + length]
            batches.append(named_tuple(ProduceBatch, (topic, index, records)))
        take_no_tags(at, is_flexible)
    take_no_tags(at, is_flexible)
    if at.problem:
        return None
    return named_tuple(Produce, (None, int16_at(start), int32_at(start + 2), batches))


def decode_produce_frame(frame):
    """Version, correlation id, client id and the request; or the reason why it is not read here."""
    return decode_frame(frame, API_KEY, VERSION_MIN, VERSION_MAX, FLEXIBLE_FROM, read_produce)


cdef object plain_frame(int32_t version, int32_t correlation_id, int32_t throttle_ms, list batches, list results):
    """The whole frame of the answer, length prefix included; None where a result has more than numbers."""
    cdef uint8_t frame[AROUND_BYTES_MAX + RESULTS_MAX * RESULT_BYTES_MAX]
    cdef uint8_t *at = frame + 4
    cdef bint is_flexible = version >= FLEXIBLE_FROM
    cdef Py_ssize_t count = len(results)
    cdef Py_ssize_t i, first, last
    cdef Py_ssize_t topics = 0
    cdef tuple batch, result
    if count > RESULTS_MAX or count != len(batches):
        return None
    for i in range(count):
        result = <tuple>results[i]  # casts, because assigning checks for exactly a tuple, and these are named ones
        batch = <tuple>batches[i]
        if result[5] is not None or result[6] is not NO_LEADER or result[4] or not is_short(batch[0]):
            return None
        if i == 0 or batch[0] != (<tuple>batches[i - 1])[0]:
            topics += 1
    at = put32(at, <uint32_t>correlation_id)
    if is_flexible:
        at[0] = 0
        at += 1
    at = put_count(at, topics, is_flexible)
    first = 0
    while first < count:
        topic = (<tuple>batches[first])[0]
        last = first + 1
        while last < count and (<tuple>batches[last])[0] == topic:
            last += 1
        at = put_topic(at, topic, is_flexible)
        at = put_count(at, last - first, is_flexible)
        for i in range(first, last):
            result = <tuple>results[i]
            at = put32(at, <uint32_t><int32_t>(<tuple>batches[i])[1])
            at = put16(at, <uint32_t><int32_t>result[0])
            at = put64(at, <uint64_t><int64_t>result[1])
            at = put64(at, <uint64_t><int64_t>result[2])
            if version >= LOG_START_FROM:
                at = put64(at, <uint64_t><int64_t>result[3])
            if is_flexible:  # no record errors, no message, no tagged fields
                at[0] = 1
                at[1] = at[2] = 0
                at += 3
            elif version >= RECORD_ERRORS_FROM:
                at = put16(put32(at, 0), 0xFFFF)
        if is_flexible:
            at[0] = 0
            at += 1
        first = last
    at = put32(at, <uint32_t>throttle_ms)
    if is_flexible:
        at[0] = 0
        at += 1
    put32(frame, <uint32_t>(at - frame - 4))
    return PyBytes_FromStringAndSize(<const char *>frame, at - frame)


def encode_produced_frame(
    int32_t version, int32_t correlation_id, int32_t throttle_ms, list batches, list results, endpoints=()
):
    """The whole frame of the answer, length prefix included."""
    frame = None if endpoints else plain_frame(version, correlation_id, throttle_ms, batches, results)
    if frame is None:
        return produced_frame(version, correlation_id, throttle_ms, batches, results, endpoints)
    return frame
