# Walking the records of a batch without decoding them, at once or in chunks.

cdef enum:
    AT_LENGTH
    AT_ATTRIBUTES
    AT_TIMESTAMP
    AT_OFFSET
    AT_KEY
    AT_VALUE
    AT_HEADER_COUNT
    AT_HEADER_KEY
    AT_HEADER_VALUE


cdef struct walk:
    # What the records must obey.
    int64_t count
    int64_t last_offset_delta
    bint is_consecutive
    bint requires_keys
    # What has been seen.
    progress seen
    int64_t missing_count
    # Where the walk stands within a record that began in an earlier chunk.
    int stage
    int shift
    uint64_t bits
    int64_t record_left
    int64_t skip
    int64_t timestamp_delta
    int64_t offset_delta
    int64_t headers_left
    bint has_key


cdef void start_walk(walk *state, int64_t count, int64_t last_offset_delta, int64_t base_timestamp) noexcept nogil:
    memset(state, 0, sizeof(walk))
    state.count = count
    state.last_offset_delta = last_offset_delta
    state.seen.base_timestamp = base_timestamp
    state.seen.max_timestamp = -1
    state.seen.max_timestamp_delta = -1
    state.seen.min_timestamp = INT64_MAX


cdef inline int see_record(
    walk *state, int64_t timestamp_delta, int64_t offset_delta, bint has_key, int32_t *missing
) noexcept nogil:
    cdef progress *seen = &state.seen
    cdef int64_t timestamp = wrapping_add(seen.base_timestamp, timestamp_delta)
    if state.is_consecutive:
        if offset_delta != seen.index:
            return NOT_CONSECUTIVE
    else:
        if offset_delta < seen.next_delta:
            return NOT_INCREASING
        if offset_delta > state.last_offset_delta:
            return BEYOND_LAST_OFFSET
    seen.next_delta = offset_delta + 1
    if timestamp > seen.max_timestamp or seen.index == 0:
        seen.max_timestamp = timestamp
        seen.max_timestamp_delta = offset_delta
    if timestamp < seen.min_timestamp and timestamp != -1:
        seen.min_timestamp = timestamp
    if state.requires_keys and not has_key:
        if state.missing_count < REPORTED_INDEXES_MAX:
            missing[state.missing_count] = <int32_t>seen.index
            state.missing_count += 1
    seen.index += 1
    return FINE


cdef int take_field(walk *state, int64_t value, int32_t *missing) noexcept nogil:
    """A varint of a record that is walked in pieces is complete: what it means depends on where it stands."""
    if state.stage == AT_LENGTH:
        if value < 1:
            return BAD_LENGTH
        state.record_left = value
        state.stage = AT_ATTRIBUTES
        return FINE
    if state.stage == AT_TIMESTAMP:
        state.timestamp_delta = value
        state.stage = AT_OFFSET
        return FINE
    if state.stage == AT_OFFSET:
        state.offset_delta = value
        state.stage = AT_KEY
        return FINE
    if state.stage == AT_HEADER_COUNT:
        if value < 0 or value > state.record_left // 2:
            return BAD_HEADER_COUNT
        state.headers_left = value
    else:
        # A length, and that many bytes to skip. They may reach into the next chunk but not out of the record.
        if value > state.record_left:
            return BAD_LENGTH
        if value > 0:
            state.skip = value
            state.record_left -= value
        if state.stage == AT_KEY:
            state.has_key = value >= 0
            state.stage = AT_VALUE
            return FINE
        if state.stage == AT_VALUE:
            state.stage = AT_HEADER_COUNT
            return FINE
        if state.stage == AT_HEADER_KEY:
            if value < 0:
                return BAD_HEADER
            state.stage = AT_HEADER_VALUE
            return FINE
        state.headers_left -= 1
    if state.headers_left:
        state.stage = AT_HEADER_KEY
        return FINE
    if state.record_left:
        return LENGTH_MISMATCH
    state.stage = AT_LENGTH
    return see_record(state, state.timestamp_delta, state.offset_delta, state.has_key, missing)


cdef int feed_walk(walk *state, const uint8_t *at, const uint8_t *end, int32_t *missing) noexcept nogil:
    """Walks on over [at, end). Whole records take the fast way; one that a chunk's end cuts goes byte by byte."""
    cdef record current
    cdef int problem
    cdef int32_t length
    cdef const uint8_t *body
    cdef int64_t last_delta = INT64_MAX if state.is_consecutive else state.last_offset_delta
    while True:
        if state.skip:
            if state.skip > end - at:
                state.skip -= end - at
                return FINE
            at += state.skip
            state.skip = 0
        if at == end:
            return FINE
        if state.stage == AT_LENGTH and state.shift == 0:
            at = walk_usual_records(at, end, state.count, last_delta, state.requires_keys, &state.seen)
            if at == end:
                return FINE
            if state.seen.index >= state.count:
                return LEFT_OVER
            body = read_varint(at, end, &length)
            if body != NULL and length <= end - body:
                problem = BAD_LENGTH if length < 1 else parse_record_body(body, length, &current)
                if problem == FINE:
                    problem = see_record(
                        state, current.timestamp_delta, current.offset_delta, current.key != NULL, missing
                    )
                if problem != FINE:
                    return problem
                at = current.end
                continue
        if state.stage != AT_LENGTH:
            if state.record_left == 0:
                return BAD_VARINT
            state.record_left -= 1
        if state.stage == AT_ATTRIBUTES:
            at += 1
            state.stage = AT_TIMESTAMP
            continue
        state.bits |= <uint64_t>(at[0] & 0x7F) << state.shift
        if at[0] >= 0x80:
            at += 1
            state.shift += 7
            if state.shift >= (70 if state.stage == AT_TIMESTAMP else 35):
                return BAD_VARINT
            continue
        at += 1
        if state.stage == AT_TIMESTAMP:
            problem = take_field(state, unzigzag64(state.bits), missing)
        else:
            problem = take_field(state, unzigzag32(<uint32_t>state.bits), missing)
        state.bits = 0
        state.shift = 0
        if problem != FINE:
            return problem


cdef inline int finish_walk(walk *state) noexcept nogil:
    if state.skip or state.shift or state.stage != AT_LENGTH or state.seen.index != state.count:
        return TOO_FEW
    return MISSING_KEYS if state.missing_count else FINE


cdef int feed_buffer(walk *state, object chunk, int32_t *missing) except -1:
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef int problem
    PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t *>view.buf
        if view.len >= GIL_BYTES:
            with nogil:
                problem = feed_walk(state, at, at + view.len, missing)
        else:
            problem = feed_walk(state, at, at + view.len, missing)
    finally:
        PyBuffer_Release(&view)
    if problem != FINE:
        raise_problem(problem, state.seen.index)
    return 0


cdef class RecordWalker:
    """Checks the records of a batch while they come in chunks; keeps no more of them than a varint."""

    cdef walk state
    cdef int32_t missing[REPORTED_INDEXES_MAX]

    def __cinit__(
        self,
        count: int,
        base_timestamp: int,
        require_keys: bool = False,
        *,
        consecutive: bool = True,
        last_offset_delta: int | None = None,
    ) -> None:
        if count < 0:
            raise_problem(NEGATIVE_COUNT, 0)
        start_walk(&self.state, count, count - 1 if last_offset_delta is None else last_offset_delta, base_timestamp)
        self.state.is_consecutive = consecutive
        self.state.requires_keys = require_keys

    def feed(self, chunk) -> None:
        feed_buffer(&self.state, chunk, self.missing)

    def finish(self):
        return finish_summary(&self.state, self.missing)


cdef object finish_summary(walk *state, const int32_t *missing):
    cdef int problem = finish_walk(state)
    cdef int64_t min_timestamp = -1 if state.seen.min_timestamp == INT64_MAX else state.seen.min_timestamp
    if problem == MISSING_KEYS:
        indexes = tuple([missing[i] for i in range(state.missing_count)])
        raise InvalidRecords(f"record {indexes[0]}: {PROBLEMS[MISSING_KEYS]}", indexes)
    if problem != FINE:
        raise_problem(problem, state.seen.index)
    return named_tuple(RecordSummary, (state.seen.index, state.seen.max_timestamp, state.seen.max_timestamp_delta, min_timestamp))


def walk_records(
    records,
    count: int,
    base_timestamp: int,
    require_keys: bool = False,
    *,
    consecutive: bool = True,
    last_offset_delta: int | None = None,
):
    """Checks the decompressed records of a batch as a whole. A broker does it for every small batch: no walker is made."""
    cdef walk state
    cdef int32_t missing[REPORTED_INDEXES_MAX]
    if count < 0:
        raise_problem(NEGATIVE_COUNT, 0)
    start_walk(&state, count, count - 1 if last_offset_delta is None else last_offset_delta, base_timestamp)
    state.is_consecutive = consecutive
    state.requires_keys = require_keys
    feed_buffer(&state, records, missing)
    return finish_summary(&state, missing)
