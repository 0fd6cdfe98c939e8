# cython: boundscheck=False, wraparound=False
"""The usual reply with records, sent in one call: a head, a range of a file, a few bytes behind it."""

from os import strerror

from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t

cdef extern from "<sys/types.h>":
    ctypedef long off_t
    ctypedef long ssize_t

cdef extern from "<sys/socket.h>" nogil:
    int MSG_MORE, MSG_DONTWAIT, MSG_NOSIGNAL
    ssize_t send(int descriptor, const void *data, size_t length, int flags)
    int setsockopt(int descriptor, int level, int name, const void *value, unsigned int length)

cdef extern from "<netinet/in.h>":
    int IPPROTO_TCP

cdef extern from "<netinet/tcp.h>":
    int TCP_CORK

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int to_descriptor, int from_descriptor, off_t *position, size_t length)


cdef inline void set_cork(int descriptor, int is_on) noexcept nogil:
    setsockopt(descriptor, IPPROTO_TCP, TCP_CORK, &is_on, sizeof(is_on))  # a matter of packets, not of bytes


cdef int64_t send_all(
    int descriptor, const char *head, int64_t head_bytes, int file_descriptor, off_t position, int64_t length,
    const char *tail, int64_t tail_bytes
) noexcept nogil:
    """How many bytes went out before the socket took no more; with errno set unless it took all."""
    cdef int64_t sent, total
    total = send(descriptor, head, head_bytes, MSG_MORE | MSG_DONTWAIT | MSG_NOSIGNAL)
    if total < head_bytes:
        return total
    sent = sendfile(descriptor, file_descriptor, &position, length)
    if sent < 0:
        return total
    total += sent
    if sent < length:
        return total
    sent = send(descriptor, tail, tail_bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
    return total if sent < 0 else total + sent


def send_framed_range(
    descriptor: int, bytes head not None, file_descriptor: int, position: int, length: int, bytes tail not None
) -> int:
    """Sends a head, a range of a file and a tail to a socket; returns how many bytes of them it took.

    The socket is corked meanwhile, so that the tail shares its packet with the end of the range. Less than all is no
    error: it takes no more now, or says what is wrong when it is given the rest.
    """
    cdef int to = descriptor, source = file_descriptor
    cdef off_t start = position
    cdef int64_t count = length, sent
    cdef const char *head_at = PyBytes_AS_STRING(head)
    cdef const char *tail_at = PyBytes_AS_STRING(tail)
    cdef int64_t head_bytes = len(head), tail_bytes = len(tail)
    cdef int problem
    with nogil:
        set_cork(to, 1)
        sent = send_all(to, head_at, head_bytes, source, start, count, tail_at, tail_bytes)
        problem = errno
        set_cork(to, 0)
    if sent < 0:
        if problem != EAGAIN and problem != EINTR:
            raise OSError(problem, strerror(problem))
        return 0
    return sent
