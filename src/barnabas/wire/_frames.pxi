"""What the compiled codecs share: numbers of the wire, big-endian, its short lengths, headers, and why one declines."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

include "../base/_named_tuples.pxi"

cdef enum:
    UUID_BYTES = 16
    HEADER_START_BYTES = 10
    NAME_BYTES_MAX = 249
    FRAME_ELEMENTS_MAX = 500
    # The reasons, as `barnabas.wire.codecs.Declined` names them.
    TAKEN = 0
    DECLINED_VERSION = 1
    DECLINED_FIELD = 2
    DECLINED_LENGTH = 3
    DECLINED_MALFORMED = 4


cdef struct frame_header:
    int32_t version
    int32_t correlation_id
    int32_t client_id_bytes
    bint is_flexible


cdef struct cursor:
    const uint8_t *data
    int64_t size
    int64_t position
    int32_t problem


cdef inline int32_t int16_at(const uint8_t *at) noexcept nogil:
    return <int16_t>((<uint32_t>at[0]) << 8 | at[1])


cdef inline int32_t int32_at(const uint8_t *at) noexcept nogil:
    return <int32_t>((<uint32_t>at[0]) << 24 | (<uint32_t>at[1]) << 16 | (<uint32_t>at[2]) << 8 | at[3])


cdef inline int64_t int64_at(const uint8_t *at) noexcept nogil:
    return <int64_t>((<uint64_t><uint32_t>int32_at(at)) << 32 | <uint32_t>int32_at(at + 4))


# --- reading: each function moves the cursor, or notes a problem, after which all of them do nothing -------------------


cdef inline const uint8_t *take(cursor *at, int64_t count) noexcept nogil:
    """The next `count` bytes; NULL, and a problem, where there are fewer."""
    cdef const uint8_t *found
    if at.problem or count < 0 or at.size - at.position < count:
        if not at.problem:
            at.problem = DECLINED_MALFORMED
        return NULL
    found = at.data + at.position
    at.position += count
    return found


cdef inline int64_t take_varint(cursor *at) noexcept nogil:
    """An unsigned number of at most five bytes; -1 with a problem."""
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef const uint8_t *byte
    while shift <= 28:
        byte = take(at, 1)
        if byte == NULL:
            return -1
        value |= <uint64_t>(byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            if value > 0x7FFFFFFF:
                break
            return <int64_t>value
        shift += 7
    at.problem = DECLINED_MALFORMED
    return -1


cdef inline int64_t take_length(cursor *at, bint is_flexible, int width) noexcept nogil:
    """Of a string (legacy width 2), of bytes or of an array (4); -1 for null, or with a problem."""
    cdef const uint8_t *found
    if is_flexible:
        return max(take_varint(at) - 1, -1)
    found = take(at, width)
    if found == NULL:
        return -1
    return max(int16_at(found) if width == 2 else int32_at(found), -1)


cdef inline int64_t take_count(cursor *at, bint is_flexible) noexcept nogil:
    """Of an array that must not be null and is not long; 0 with a problem."""
    cdef int64_t count = take_length(at, is_flexible, 4)
    if at.problem:
        return 0
    if count < 0 or count > FRAME_ELEMENTS_MAX:
        at.problem = DECLINED_MALFORMED if count < 0 else DECLINED_LENGTH
        return 0
    return count


cdef inline void take_no_tags(cursor *at, bint is_flexible) noexcept nogil:
    """The tagged fields of a flexible version, which must be none."""
    cdef const uint8_t *found
    if is_flexible:
        found = take(at, 1)
        if found != NULL and found[0]:
            at.problem = DECLINED_FIELD


cdef inline object text_of(const uint8_t *found, int64_t length):
    return PyUnicode_DecodeUTF8(<const char *>found, length, "replace")


cdef inline object take_text(cursor *at, bint is_flexible, bint is_nullable):
    """A short text; None for null, or with a problem."""
    cdef int64_t length = take_length(at, is_flexible, 2)
    cdef const uint8_t *found
    if length < 0:
        if not (at.problem or is_nullable):
            at.problem = DECLINED_MALFORMED
        return None
    if length > NAME_BYTES_MAX:
        at.problem = DECLINED_LENGTH
        return None
    found = take(at, length)
    return None if found == NULL else text_of(found, length)


cdef inline object take_topic(cursor *at, bint is_flexible, bint has_id):
    """The name of a topic or the bytes of its id; None with a problem."""
    cdef const uint8_t *found
    if not has_id:
        return take_text(at, is_flexible, False)
    found = take(at, UUID_BYTES)
    return None if found == NULL else PyBytes_FromStringAndSize(<const char *>found, UUID_BYTES)


cdef inline void take_header(
    cursor *at, int32_t api_key, int32_t version_min, int32_t version_max, int32_t flexible_from, frame_header *header
) noexcept nogil:
    """The header of a request of this API; the cursor stands at the body then."""
    cdef const uint8_t *start = take(at, HEADER_START_BYTES)
    if start == NULL:
        return
    header.version = int16_at(start + 2)
    if int16_at(start) != api_key or header.version < version_min or header.version > version_max:
        at.problem = DECLINED_VERSION
        return
    header.correlation_id = int32_at(start + 4)
    header.client_id_bytes = max(int16_at(start + 8), 0)
    header.is_flexible = header.version >= flexible_from
    take(at, header.client_id_bytes)
    take_no_tags(at, header.is_flexible)


cdef inline object client_id_of(const uint8_t *data, frame_header *header):
    return text_of(data + HEADER_START_BYTES, header.client_id_bytes)


ctypedef object (*body_reader)(object frame, cursor *at, frame_header *header)
"""Makes the request object of a body; None with a problem."""


cdef object decode_frame(
    object frame, int32_t api_key, int32_t version_min, int32_t version_max, int32_t flexible_from, body_reader read_body
):
    """Version, correlation id, client id and the request object of a whole frame; or why it is not read here."""
    cdef Py_buffer view
    cdef frame_header header = frame_header(0, 0, 0, False)
    cdef cursor at
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        at = cursor(<const uint8_t *>view.buf, view.len, 0, TAKEN)
        take_header(&at, api_key, version_min, version_max, flexible_from, &header)
        asked = None if at.problem else read_body(frame, &at, &header)
        if at.problem == TAKEN and at.position != at.size:
            at.problem = DECLINED_MALFORMED
        if at.problem:
            return at.problem
        return (header.version, header.correlation_id, client_id_of(at.data, &header), asked)
    finally:
        PyBuffer_Release(&view)


# --- writing ----------------------------------------------------------------------------------------------------------


cdef inline uint8_t *put16(uint8_t *at, uint32_t value) noexcept nogil:
    at[0] = <uint8_t>(value >> 8)
    at[1] = <uint8_t>value
    return at + 2


cdef inline uint8_t *put32(uint8_t *at, uint32_t value) noexcept nogil:
    return put16(put16(at, value >> 16), value & 0xFFFF)


cdef inline uint8_t *put64(uint8_t *at, uint64_t value) noexcept nogil:
    return put32(put32(at, <uint32_t>(value >> 32)), <uint32_t>value)


cdef inline uint8_t *put_varint(uint8_t *at, uint64_t value) noexcept nogil:
    while value >= 0x80:
        at[0] = <uint8_t>(value | 0x80)
        at += 1
        value >>= 7
    at[0] = <uint8_t>value
    return at + 1


cdef inline uint8_t *put_count(uint8_t *at, Py_ssize_t count, bint is_flexible) noexcept nogil:
    """Of an array."""
    return put_varint(at, count + 1) if is_flexible else put32(at, <uint32_t>count)


cdef inline uint8_t *put_topic(uint8_t *at, object topic, bint is_flexible) except NULL:
    """The name of a topic, of `NAME_BYTES_MAX` bytes at most, or the bytes of its id."""
    cdef Py_ssize_t length = UUID_BYTES
    cdef const char *name
    if isinstance(topic, bytes):
        name = PyBytes_AS_STRING(topic)
    else:
        name = PyUnicode_AsUTF8AndSize(topic, &length)
        at = put_varint(at, length + 1) if is_flexible else put16(at, <uint32_t>length)
    memcpy(at, name, length)
    return at + length


cdef inline bint is_short(object topic) except -1:
    """Whether a topic's name has its room in an answer that is written here; an id always has."""
    cdef Py_ssize_t length = 0
    if isinstance(topic, bytes):
        return len(topic) == UUID_BYTES
    try:
        PyUnicode_AsUTF8AndSize(topic, &length)
    except UnicodeEncodeError:  # half of a surrogate pair, which the reference replaces
        return False
    return length <= NAME_BYTES_MAX
