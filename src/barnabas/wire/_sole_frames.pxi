"""What the readers and writers of single shapes share: numbers of the wire, big-endian, and its short lengths."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    UUID_BYTES = 16
    HEADER_START_BYTES = 10
    NAME_BYTES_MAX = 249
    ONE_BYTE_LENGTH_MAX = 0x7F


cdef struct frame_header:
    int32_t version
    int32_t correlation_id
    int32_t client_id_bytes


cdef inline int32_t int16_at(const uint8_t *at) noexcept nogil:
    return <int16_t>((<uint32_t>at[0]) << 8 | at[1])


cdef inline int32_t int32_at(const uint8_t *at) noexcept nogil:
    return <int32_t>((<uint32_t>at[0]) << 24 | (<uint32_t>at[1]) << 16 | (<uint32_t>at[2]) << 8 | at[3])


cdef inline int64_t int64_at(const uint8_t *at) noexcept nogil:
    return <int64_t>((<uint64_t><uint32_t>int32_at(at)) << 32 | <uint32_t>int32_at(at + 4))


cdef inline uint8_t *put16(uint8_t *at, uint32_t value) noexcept nogil:
    at[0] = <uint8_t>(value >> 8)
    at[1] = <uint8_t>value
    return at + 2


cdef inline uint8_t *put32(uint8_t *at, uint32_t value) noexcept nogil:
    return put16(put16(at, value >> 16), value & 0xFFFF)


cdef inline uint8_t *put64(uint8_t *at, uint64_t value) noexcept nogil:
    return put32(put32(at, <uint32_t>(value >> 32)), <uint32_t>value)


cdef inline uint8_t *put_length(uint8_t *at, Py_ssize_t length) noexcept nogil:
    """Of a compact string or array: one more than it has, in seven bits a byte. For lengths of two bytes at most."""
    if length + 1 < 0x80:
        at[0] = <uint8_t>(length + 1)
        return at + 1
    at[0] = <uint8_t>((length + 1) | 0x80)
    at[1] = <uint8_t>((length + 1) >> 7)
    return at + 2


cdef inline int64_t read_flexible_header(
    const uint8_t *data, int64_t size, int32_t api_key, int32_t version_min, int32_t version_max, frame_header *header
) noexcept nogil:
    """Where the body of this API's request begins; -1 if it is none, of another version, or has tagged fields."""
    cdef int64_t position
    if size < HEADER_START_BYTES or int16_at(data) != api_key:
        return -1
    header.version = int16_at(data + 2)
    if header.version < version_min or header.version > version_max:
        return -1
    header.correlation_id = int32_at(data + 4)
    header.client_id_bytes = max(int16_at(data + 8), 0)
    position = HEADER_START_BYTES + header.client_id_bytes
    return position + 1 if position < size and data[position] == 0 else -1
