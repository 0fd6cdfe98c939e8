# The two halves of compaction: remember the newest offset of every key, then drop what is older.

cdef struct slot:
    uint64_t low
    uint64_t high
    int64_t next_offset  # the offset plus one, so that zeroed memory is an empty slot


cdef class KeyOffsets:
    """A bounded map from keyed hashes of keys to their newest offsets: open addressing, 24 bytes a slot."""

    cdef slot *slots
    cdef uint64_t slot_count
    cdef int64_t used
    cdef int64_t newest_offset
    cdef uint64_t secret[2]
    cdef readonly int64_t capacity

    def __cinit__(self, memory_bytes: int, secret: bytes) -> None:
        if len(secret) != 16:
            raise ValueError(f"the secret has {len(secret)} bytes, not 16")
        if memory_bytes < 2 * sizeof(slot):
            raise ValueError(f"{memory_bytes} bytes hold no map")
        self.secret[0] = int.from_bytes(secret[:8], "little")
        self.secret[1] = int.from_bytes(secret[8:], "little")
        self.slot_count = memory_bytes // sizeof(slot)
        self.capacity = self.slot_count * 9 // 10
        self.clear()

    def __dealloc__(self):
        free(self.slots)

    def __len__(self) -> int:
        return self.used

    @property
    def last_offset(self) -> int:
        return self.newest_offset

    def clear(self) -> None:
        # Fresh zeroed memory is free until it is touched; wiping the old would touch all of it.
        free(self.slots)
        self.slots = <slot *>calloc(self.slot_count, sizeof(slot))
        if self.slots == NULL:
            raise MemoryError
        self.used = 0
        self.newest_offset = -1

    cdef slot *find(self, siphash hash) noexcept nogil:
        """The slot of the key, or the empty one where it belongs. There is one, as the load stays below one."""
        cdef uint64_t index = hash.low % self.slot_count
        while self.slots[index].next_offset and (
            self.slots[index].low != hash.low or self.slots[index].high != hash.high
        ):
            index += 1
            if index == self.slot_count:
                index = 0
        return &self.slots[index]

    cdef int64_t next_offset_of(self, const uint8_t *key, size_t length) noexcept nogil:
        return self.find(siphash_compute(self.secret, key, length)).next_offset

    cdef int put_records(
        self, const uint8_t *at, const uint8_t *end, int64_t count, int64_t base_offset, int64_t *taken
    ) noexcept nogil:
        cdef record current
        cdef siphash hash
        cdef slot *entry
        cdef int problem
        cdef int64_t offset
        while taken[0] < count:
            problem = parse_record(at, end, &current)
            if problem != FINE:
                return problem
            if current.offset_delta < 0 or base_offset > INT64_MAX - 1 - current.offset_delta:
                return BAD_OFFSETS
            offset = base_offset + current.offset_delta
            if current.key != NULL:
                hash = siphash_compute(self.secret, current.key, current.key_length)
                entry = self.find(hash)
                if entry.next_offset == 0:
                    if self.used == self.capacity:
                        return FINE
                    self.used += 1
                    entry.low = hash.low
                    entry.high = hash.high
                if offset >= entry.next_offset:
                    entry.next_offset = offset + 1
            if offset > self.newest_offset:
                self.newest_offset = offset
            at = current.end
            taken[0] += 1
        return FINE if at == end else LEFT_OVER

    def add_records(self, records, count: int, base_offset: int) -> int:
        cdef Py_buffer view
        cdef const uint8_t *at
        cdef int64_t wanted = count, base = base_offset, taken = 0
        cdef int problem
        if wanted < 0:
            raise_problem(NEGATIVE_COUNT, 0)
        if base < 0:
            raise_problem(BAD_OFFSETS, 0)
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        try:
            at = <const uint8_t *>view.buf
            if view.len >= GIL_BYTES:
                with nogil:
                    problem = self.put_records(at, at + view.len, wanted, base, &taken)
            else:
                problem = self.put_records(at, at + view.len, wanted, base, &taken)
        finally:
            PyBuffer_Release(&view)
        if problem != FINE:
            raise_problem(problem, taken)
        return taken

    def latest(self, key: bytes) -> int:
        return self.next_offset_of(<const uint8_t *>PyBytes_AS_STRING(key), len(key)) - 1


cdef struct survivors:
    growing kept
    int64_t count
    int64_t max_timestamp
    int64_t max_timestamp_delta
    int64_t last_delta
    bint has_tombstones
    bint has_dropped
    int64_t index  # of the current record, for the error that names it


cdef int keep_record(survivors *into, record *current, int64_t timestamp, int64_t new_base_timestamp) noexcept nogil:
    """The record once more, with its timestamp relative to another base; nothing else in it changes."""
    cdef int64_t delta = wrapping_subtract(timestamp, new_base_timestamp)
    cdef size_t rest = current.end - current.after_timestamp
    cdef int64_t length = 1 + varint_bytes(delta) + <int64_t>rest
    cdef uint8_t *at
    if length > 0x7FFFFFFF:
        return BAD_LENGTH
    if reserve(&into.kept, length + 5) != FINE:
        return NO_MEMORY
    at = write_varint(into.kept.data + into.kept.size, length)
    at[0] = current.body[0]
    at = write_varint(at + 1, delta)
    memcpy(at, current.after_timestamp, rest)
    into.kept.size = at + rest - into.kept.data
    return FINE


cdef int filter_run(
    const uint8_t *at, const uint8_t *end, int64_t count, int64_t base_offset, int64_t base_timestamp,
    KeyOffsets newest, bint drop_tombstones, int64_t new_base_timestamp, survivors *into
) noexcept nogil:
    cdef record current
    cdef int problem
    cdef int64_t i, timestamp, previous_delta = -1
    for i in range(count):
        into.index = i
        problem = parse_record(at, end, &current)
        if problem != FINE:
            return problem
        if current.offset_delta <= previous_delta:
            return NOT_INCREASING
        if base_offset > INT64_MAX - 1 - current.offset_delta:
            return BAD_OFFSETS
        previous_delta = current.offset_delta
        at = current.end
        if (
            current.key == NULL
            or (drop_tombstones and current.value == NULL)
            or base_offset + current.offset_delta < newest.next_offset_of(current.key, current.key_length) - 1
        ):
            into.has_dropped = True
            continue
        timestamp = wrapping_add(base_timestamp, current.timestamp_delta)
        if base_timestamp == new_base_timestamp:
            if reserve(&into.kept, current.end - current.start) != FINE:
                return NO_MEMORY
            put_bytes(&into.kept, current.start, current.end - current.start)
        else:
            problem = keep_record(into, &current, timestamp, new_base_timestamp)
            if problem != FINE:
                return problem
        if into.count == 0 or timestamp > into.max_timestamp:
            into.max_timestamp = timestamp
            into.max_timestamp_delta = current.offset_delta
        into.has_tombstones |= current.value == NULL
        into.last_delta = current.offset_delta
        into.count += 1
    return FINE if at == end else LEFT_OVER


def filter_records(
    records,
    count: int,
    base_offset: int,
    base_timestamp: int,
    KeyOffsets newest,
    *,
    drop_tombstones: bool,
    new_base_timestamp: int,
):
    """The records that compaction keeps: those with a key of which `newest` knows no newer offset."""
    cdef Py_buffer view
    cdef survivors result
    cdef const uint8_t *at
    cdef int64_t wanted = count, base = base_offset, old_base = base_timestamp, new_base = new_base_timestamp
    cdef bint drops = drop_tombstones
    cdef int problem
    cdef char *into
    if newest is None:
        raise TypeError("newest is None")
    if wanted < 0:
        raise_problem(NEGATIVE_COUNT, 0)
    if base < 0:
        raise_problem(BAD_OFFSETS, 0)
    memset(&result, 0, sizeof(survivors))
    result.max_timestamp = result.max_timestamp_delta = result.last_delta = -1
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t *>view.buf
        if view.len >= GIL_BYTES:
            with nogil:
                problem = filter_run(at, at + view.len, wanted, base, old_base, newest, drops, new_base, &result)
        else:
            problem = filter_run(at, at + view.len, wanted, base, old_base, newest, drops, new_base, &result)
        if problem != FINE:
            raise_problem(problem, result.index)
        kept = None
        if result.has_dropped or old_base != new_base:
            kept = PyBytes_FromStringAndSize(NULL, result.kept.size)
            into = PyBytes_AS_STRING(kept)
            if result.kept.size:  # where nothing is kept there is no buffer either
                with nogil:  # it may be a hundred megabytes
                    memcpy(into, result.kept.data, result.kept.size)
        return FilteredRecords(
            kept,
            result.count,
            result.max_timestamp,
            result.max_timestamp_delta,
            bool(result.has_tombstones),
            result.last_delta,
        )
    finally:
        free(result.kept.data)
        PyBuffer_Release(&view)
