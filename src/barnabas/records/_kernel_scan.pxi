# Runs of batches and searches: recovery's scan, the batch for an offset, an index's entry, the record for a timestamp.

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


cdef object batch_header(const batch *one):
    return named_tuple(
        BatchHeader,
        (
            one.base_offset,
            one.length,
            one.leader_epoch,
            one.magic,
            one.crc,
            one.attributes,
            one.last_offset_delta,
            one.base_timestamp,
            one.max_timestamp,
            one.producer_id,
            one.producer_epoch,
            one.base_sequence,
            one.count,
        ),
    )


cdef list batch_headers(growing *found):
    cdef batch *batches = <batch *>found.data
    cdef size_t i
    return [batch_header(&batches[i]) for i in range(found.size // sizeof(batch))]


cdef int inspect(const uint8_t *at, int64_t length, batch *current, walk *state, int32_t *missing) noexcept nogil:
    cdef int problem = check_batch(at, length, False, current)
    if problem != FINE:
        return problem
    if <int64_t>current.length + PREFIX_BYTES != length:
        return LEFT_OVER
    if crc32c_compute(0, at + CRC_START, length - CRC_START) != current.crc:
        return BAD_CRC
    if current.attributes & CODEC_MASK:
        return FINE
    if current.count < 0:
        return NEGATIVE_COUNT
    state.count = current.count
    state.last_offset_delta = current.count - 1
    state.seen.base_timestamp = current.base_timestamp
    return feed_walk(state, at + HEADER_BYTES, at + length, missing)


def inspect_batch(batch_bytes, require_keys: bool = False):
    """The header of the one batch in a buffer, and what walking its records found; None for compressed ones."""
    cdef Py_buffer view
    cdef batch current
    cdef walk state
    cdef int32_t missing[REPORTED_INDEXES_MAX]
    cdef int problem
    start_walk(&state, 0, -1, 0)
    state.is_consecutive = True
    state.requires_keys = require_keys
    PyObject_GetBuffer(batch_bytes, &view, PyBUF_SIMPLE)
    try:
        if view.len >= GIL_BYTES:
            with nogil:
                problem = inspect(<const uint8_t *>view.buf, view.len, &current, &state, missing)
        else:
            problem = inspect(<const uint8_t *>view.buf, view.len, &current, &state, missing)
    finally:
        PyBuffer_Release(&view)
    if problem == INCOMPLETE:
        raise CorruptBatch("the batch is incomplete")
    if problem != FINE:
        raise_problem(problem, state.seen.index)
    header = batch_header(&current)
    if current.attributes & CODEC_MASK:
        return header, None
    return header, finish_summary(&state, missing)


cdef bint admit(
    uint8_t *at, int64_t length, batch *current, bint require_keys, int64_t earliest, int64_t latest
) noexcept nogil:
    """Whether the one batch at `at` needs nothing but its offsets."""
    cdef walk state
    cdef int32_t missing[REPORTED_INDEXES_MAX]
    if check_batch(at, length, False, current) != FINE or <int64_t>current.length + PREFIX_BYTES != length:
        return False
    if current.base_offset or current.attributes or current.count <= 0 or current.last_offset_delta != current.count - 1:
        return False
    if current.base_sequence < 0 and current.producer_id >= 0:
        return False
    if crc32c_compute(0, at + CRC_START, length - CRC_START) != current.crc:
        return False
    start_walk(&state, current.count, current.last_offset_delta, current.base_timestamp)
    state.is_consecutive = True
    state.requires_keys = require_keys
    if feed_walk(&state, at + HEADER_BYTES, at + length, missing) != FINE or finish_walk(&state) != FINE:
        return False
    return (
        state.seen.max_timestamp == current.max_timestamp
        and -1 <= state.seen.max_timestamp <= latest
        and state.seen.min_timestamp >= earliest
    )


def admit_batch(
    batch_bytes,
    base_offset: int,
    leader_epoch: int,
    require_keys: bool,
    now_ms: int,
    before_max_ms: int,
    after_max_ms: int,
):
    """Gives the batch its offsets and epoch, in place, if it can be stored just as it came; else None, and no change."""
    cdef Py_buffer view
    cdef batch current
    cdef int64_t offset = base_offset, now = now_ms, before = before_max_ms, after = after_max_ms
    cdef int64_t earliest = now - before, latest = now + after if after < INT64_MAX - now else INT64_MAX
    cdef int32_t epoch = leader_epoch
    cdef bint requires_keys = require_keys, is_admitted
    PyObject_GetBuffer(batch_bytes, &view, PyBUF_SIMPLE)
    try:
        if view.readonly:
            return None
        if view.len >= GIL_BYTES:
            with nogil:
                is_admitted = admit(<uint8_t *>view.buf, view.len, &current, requires_keys, earliest, latest)
        else:
            is_admitted = admit(<uint8_t *>view.buf, view.len, &current, requires_keys, earliest, latest)
        if not is_admitted:
            return None
        current.base_offset = offset
        current.leader_epoch = epoch
        store_big_endian(<uint8_t *>view.buf, <uint64_t>offset, 8)
        store_big_endian(<uint8_t *>view.buf + 12, <uint32_t>epoch, 4)
    finally:
        PyBuffer_Release(&view)
    header = batch_header(&current) if current.producer_id >= 0 else None
    return (offset + current.last_offset_delta, current.max_timestamp, current.count, header)


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


def floor_entry(entries, entry_bytes: int, column: int, is_wide: bool, target: int) -> int:
    """See the reference."""
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef int64_t step = entry_bytes, start = column, wanted = target, low = 0, high, middle, value
    cdef bint wide = is_wide
    assert 0 < step and 0 <= start <= step - (8 if wide else 4), "a column lies within its entry"
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    high = view.len // step
    at = <const uint8_t *>view.buf + start
    while low < high:
        middle = (low + high) // 2
        if wide:
            value = <int64_t>load_big_endian(at + middle * step, 8)
        else:
            value = <int32_t>load_big_endian(at + middle * step, 4)
        if value <= wanted:
            low = middle + 1
        else:
            high = middle
    PyBuffer_Release(&view)
    return low - 1


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
