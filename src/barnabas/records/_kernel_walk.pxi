# Walking records without decoding them: validation, recovery's scan, and the searches by offset and by timestamp.

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
    int64_t base_timestamp
    bint is_consecutive
    bint requires_keys
    # What has been seen.
    int64_t index
    int64_t previous_delta
    int64_t max_timestamp
    int64_t max_timestamp_delta
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
    state.base_timestamp = base_timestamp
    state.previous_delta = -1
    state.max_timestamp = -1
    state.max_timestamp_delta = -1


cdef inline int see_record(
    walk *state, int64_t timestamp_delta, int64_t offset_delta, bint has_key, int32_t *missing
) noexcept nogil:
    cdef int64_t timestamp = wrapping_add(state.base_timestamp, timestamp_delta)
    if state.is_consecutive:
        if offset_delta != state.index:
            return NOT_CONSECUTIVE
    else:
        if offset_delta <= state.previous_delta:
            return NOT_INCREASING
        if offset_delta > state.last_offset_delta:
            return BEYOND_LAST_OFFSET
        state.previous_delta = offset_delta
    if timestamp > state.max_timestamp or state.index == 0:
        state.max_timestamp = timestamp
        state.max_timestamp_delta = offset_delta
    if state.requires_keys and not has_key:
        if state.missing_count < REPORTED_INDEXES_MAX:
            missing[state.missing_count] = <int32_t>state.index
            state.missing_count += 1
    state.index += 1
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
        # A length and so many bytes to skip. They may reach into the next chunk but not out of the record.
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
            if state.index >= state.count:
                return LEFT_OVER
            body = read_varint(at, end, &length)
            if body != NULL and length <= end - body:
                problem = parse_record(at, end, &current)
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
    if state.skip or state.shift or state.stage != AT_LENGTH or state.index != state.count:
        return TOO_FEW
    return MISSING_KEYS if state.missing_count else FINE


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
            raise InvalidRecords(PROBLEMS[NEGATIVE_COUNT])
        start_walk(&self.state, count, count - 1 if last_offset_delta is None else last_offset_delta, base_timestamp)
        self.state.is_consecutive = consecutive
        self.state.requires_keys = require_keys

    def feed(self, chunk) -> None:
        cdef Py_buffer view
        cdef const uint8_t *at
        cdef int problem
        PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE)
        try:
            at = <const uint8_t *>view.buf
            if view.len >= GIL_BYTES:
                with nogil:
                    problem = feed_walk(&self.state, at, at + view.len, self.missing)
            else:
                problem = feed_walk(&self.state, at, at + view.len, self.missing)
        finally:
            PyBuffer_Release(&view)
        if problem != FINE:
            raise_problem(problem, self.state.index)

    def finish(self):
        cdef int problem = finish_walk(&self.state)
        cdef tuple indexes
        if problem == MISSING_KEYS:
            indexes = tuple([self.missing[i] for i in range(self.state.missing_count)])
            raise InvalidRecords(f"record {indexes[0]}: {PROBLEMS[MISSING_KEYS]}", indexes)
        if problem != FINE:
            raise_problem(problem, self.state.index)
        return RecordSummary(self.state.index, self.state.max_timestamp, self.state.max_timestamp_delta)


def walk_records(
    records,
    count: int,
    base_timestamp: int,
    require_keys: bool = False,
    *,
    consecutive: bool = True,
    last_offset_delta: int | None = None,
):
    """Checks the decompressed records of a batch as a whole."""
    cdef RecordWalker walker = RecordWalker(
        count, base_timestamp, require_keys, consecutive=consecutive, last_offset_delta=last_offset_delta
    )
    walker.feed(records)
    return walker.finish()


cdef int check_batch(const uint8_t *at, int64_t available, bint verify, batch *current) noexcept nogil:
    """FINE for a whole good batch, INCOMPLETE for the beginning of one, else its problem."""
    cdef walk state
    cdef int problem
    if available < HEADER_BYTES:
        return INCOMPLETE
    load_batch(at, current)
    if current.magic != MAGIC:
        return BAD_MAGIC
    if current.length < HEADER_BYTES - PREFIX_BYTES:
        return BAD_BATCH_LENGTH
    if <int64_t>current.length + PREFIX_BYTES > available:
        return INCOMPLETE
    if not verify:
        return FINE
    if crc32c_compute(0, at + CRC_START, current.length + PREFIX_BYTES - CRC_START) != current.crc:
        return BAD_CRC
    if current.count < 0:
        return NEGATIVE_COUNT
    if current.last_offset_delta < 0:
        return NEGATIVE_LAST_OFFSET
    if current.attributes & CODEC_MASK:
        return FINE
    start_walk(&state, current.count, current.last_offset_delta, current.base_timestamp)
    problem = feed_walk(&state, at + HEADER_BYTES, at + current.length + PREFIX_BYTES, NULL)
    return finish_walk(&state) if problem == FINE else problem


cdef int scan_run(
    const uint8_t *at, int64_t length, bint verify, int64_t limit, growing *found, int64_t *valid_bytes, batch *current
) noexcept nogil:
    cdef int problem
    while limit > 0 and valid_bytes[0] < length:
        problem = check_batch(at + valid_bytes[0], length - valid_bytes[0], verify, current)
        if problem != FINE:
            return problem
        problem = reserve(found, sizeof(batch))
        if problem != FINE:
            return problem
        put_bytes(found, <const uint8_t *>current, sizeof(batch))
        valid_bytes[0] += <int64_t>current.length + PREFIX_BYTES
        limit -= 1
    return FINE


cdef list batch_headers(growing *found):
    cdef batch *batches = <batch *>found.data
    cdef list headers = []
    cdef size_t i
    new = tuple.__new__
    for i in range(found.size // sizeof(batch)):
        headers.append(
            new(
                BatchHeader,
                (
                    batches[i].base_offset,
                    batches[i].length,
                    batches[i].leader_epoch,
                    batches[i].magic,
                    batches[i].crc,
                    batches[i].attributes,
                    batches[i].last_offset_delta,
                    batches[i].base_timestamp,
                    batches[i].max_timestamp,
                    batches[i].producer_id,
                    batches[i].producer_epoch,
                    batches[i].base_sequence,
                    batches[i].count,
                ),
            )
        )
    return headers


def scan_batches(buffer, position: int = 0, *, verify: bool = True, limit: int = 2**31 - 1):
    """The good batches from `position` on, up to a bad or an incomplete one or to `limit` batches."""
    cdef Py_buffer view
    cdef growing found
    cdef batch current
    cdef const uint8_t *at
    cdef int64_t start = position, length, batches_max = limit, valid_bytes = 0, needed_bytes = 0
    cdef bint verifies = verify
    cdef int problem
    memset(&found, 0, sizeof(growing))
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or start > view.len:
            raise ValueError(f"position {start} is outside the buffer of {view.len} bytes")
        at = <const uint8_t *>view.buf + start
        length = view.len - start
        if length >= GIL_BYTES:
            with nogil:
                problem = scan_run(at, length, verifies, batches_max, &found, &valid_bytes, &current)
        else:
            problem = scan_run(at, length, verifies, batches_max, &found, &valid_bytes, &current)
        if problem == NO_MEMORY:
            raise MemoryError
        text = None
        if problem == INCOMPLETE:
            if length - valid_bytes < HEADER_BYTES:
                needed_bytes = HEADER_BYTES
            else:
                needed_bytes = <int64_t>current.length + PREFIX_BYTES
        elif problem != FINE:
            text = PROBLEMS[problem]
        return BatchScan(batch_headers(&found), valid_bytes, needed_bytes, text)
    finally:
        free(found.data)
        PyBuffer_Release(&view)


cdef inline bint reaches(int64_t base_offset, int32_t last_offset_delta, int64_t target_offset) noexcept nogil:
    """Whether base + delta >= target, for any three numbers: the sum itself might overflow."""
    if last_offset_delta >= 0:
        return base_offset >= target_offset or base_offset > INT64_MAX - last_offset_delta or (
            base_offset + last_offset_delta >= target_offset
        )
    return base_offset > target_offset and (
        base_offset >= 0 or base_offset >= -INT64_MAX - 1 - last_offset_delta
    ) and base_offset + last_offset_delta >= target_offset


def seek_offset(buffer, target_offset: int):
    """Where the first batch begins that reaches `target_offset`, and whether it is in the buffer."""
    cdef Py_buffer view
    cdef batch current
    cdef int64_t position = 0, target = target_offset
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        while view.len - position >= HEADER_BYTES:
            load_batch(<const uint8_t *>view.buf + position, &current)
            if current.magic != MAGIC:
                raise_problem(BAD_MAGIC, 0)
            if current.length < HEADER_BYTES - PREFIX_BYTES:
                raise_problem(BAD_BATCH_LENGTH, 0)
            if reaches(current.base_offset, current.last_offset_delta, target):
                return position, True
            position += <int64_t>current.length + PREFIX_BYTES
        return position, False
    finally:
        PyBuffer_Release(&view)


cdef int search_timestamp(
    const uint8_t *at, const uint8_t *end, int64_t count, int64_t base_timestamp, int64_t target, int64_t first_delta,
    int64_t *index, record *current
) noexcept nogil:
    """FINE with *index < count when found, FINE with *index == count when not."""
    cdef int64_t previous_delta = -1
    cdef int problem
    while index[0] < count:
        if at == end:
            return TOO_FEW
        problem = parse_record(at, end, current)
        if problem != FINE:
            return problem
        if current.offset_delta <= previous_delta:
            return NOT_INCREASING
        previous_delta = current.offset_delta
        if current.offset_delta >= first_delta and wrapping_add(base_timestamp, current.timestamp_delta) >= target:
            return FINE
        at = current.end
        index[0] += 1
    return FINE if at == end else LEFT_OVER


def find_timestamp(records, count: int, base_timestamp: int, target_timestamp: int, first_delta: int = 0):
    """(offset delta, timestamp) of the first record from `first_delta` on that is not older than the target."""
    cdef Py_buffer view
    cdef record current
    cdef const uint8_t *at
    cdef int64_t wanted = count, base = base_timestamp, target = target_timestamp, first = first_delta, index = 0
    cdef int problem
    if wanted < 0:
        raise_problem(NEGATIVE_COUNT, 0)
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t *>view.buf
        if view.len >= GIL_BYTES:
            with nogil:
                problem = search_timestamp(at, at + view.len, wanted, base, target, first, &index, &current)
        else:
            problem = search_timestamp(at, at + view.len, wanted, base, target, first, &index, &current)
    finally:
        PyBuffer_Release(&view)
    if problem != FINE:
        raise_problem(problem, index)
    if index == wanted:
        return None
    return current.offset_delta, wrapping_add(base, current.timestamp_delta)
