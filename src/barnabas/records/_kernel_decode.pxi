# Records to Arrow-shaped columns.

cdef enum:
    OFFSETS
    TIMESTAMPS
    KEY_OFFSETS
    KEY_DATA
    KEY_VALIDITY
    VALUE_OFFSETS
    VALUE_DATA
    VALUE_VALIDITY
    HEADER_LIST_OFFSETS
    HEADER_KEY_OFFSETS
    HEADER_KEY_DATA
    HEADER_VALUE_OFFSETS
    HEADER_VALUE_DATA
    HEADER_VALUE_VALIDITY
    COLUMN_COUNT


cdef struct table:
    growing columns[COLUMN_COUNT]
    int64_t rows
    int64_t headers
    int64_t key_nulls
    int64_t value_nulls
    int64_t header_value_nulls
    int64_t index  # of the record being decoded, for the error that names it


cdef struct abort:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset


cdef class ColumnMemory:
    """Owns the bytes of a finished column and lends them through the buffer protocol, read-only."""

    cdef uint8_t *data
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    def __dealloc__(self):
        free(self.data)


cdef object lend(growing *memory):
    """Moves the memory into an object of its own, without the room it grew into but did not need."""
    cdef ColumnMemory owner = ColumnMemory.__new__(ColumnMemory)
    cdef uint8_t *data = <uint8_t *>realloc(memory.data, memory.size or 1)
    owner.data = data if data != NULL else memory.data
    owner.size = memory.size
    memory.data = NULL
    memory.size = 0
    memory.capacity = 0
    return memoryview(owner)


cdef inline void put_validity(growing *bitmap, int64_t row, bint is_valid) noexcept nogil:
    cdef uint8_t *byte = bitmap.data + (row >> 3)
    cdef int bit = row & 7
    if bit == 0:
        byte[0] = is_valid
        bitmap.size += 1
    else:
        # Bits from this one on may be left from a batch that was rolled back.
        byte[0] = (byte[0] & ((1 << bit) - 1)) | (is_valid << bit)


cdef int put_headers(table *into, record *current) noexcept nogil:
    cdef header entry
    cdef int32_t i
    cdef int problem = FINE
    cdef const uint8_t *at = current.headers
    cdef size_t room = <size_t>current.header_count * 4 + 4, data_room = current.end - at
    problem |= reserve(&into.columns[HEADER_KEY_OFFSETS], room)
    problem |= reserve(&into.columns[HEADER_VALUE_OFFSETS], room)
    problem |= reserve(&into.columns[HEADER_VALUE_VALIDITY], room)
    problem |= reserve(&into.columns[HEADER_KEY_DATA], data_room)
    problem |= reserve(&into.columns[HEADER_VALUE_DATA], data_room)
    if problem != FINE:
        return NO_MEMORY
    for i in range(current.header_count):
        at = read_record_header(at, current.end, &entry)
        if at == NULL:
            return BAD_HEADER
        put_bytes(&into.columns[HEADER_KEY_DATA], entry.key, entry.key_length)
        put_int32(&into.columns[HEADER_KEY_OFFSETS], <int32_t>into.columns[HEADER_KEY_DATA].size)
        if entry.value != NULL:
            put_bytes(&into.columns[HEADER_VALUE_DATA], entry.value, entry.value_length)
        else:
            into.header_value_nulls += 1
        put_int32(&into.columns[HEADER_VALUE_OFFSETS], <int32_t>into.columns[HEADER_VALUE_DATA].size)
        put_validity(&into.columns[HEADER_VALUE_VALIDITY], into.headers, entry.value != NULL)
        into.headers += 1
    return FINE


cdef int reserve_rows(table *into, size_t rows, size_t data_bytes) noexcept nogil:
    """Reserves room for `rows` rows with at most `data_bytes` of keys and values. Untouched room costs no memory."""
    cdef int problem = FINE
    problem |= reserve(&into.columns[OFFSETS], rows * 8)
    problem |= reserve(&into.columns[TIMESTAMPS], rows * 8)
    problem |= reserve(&into.columns[KEY_OFFSETS], rows * 4)
    problem |= reserve(&into.columns[VALUE_OFFSETS], rows * 4)
    problem |= reserve(&into.columns[HEADER_LIST_OFFSETS], rows * 4)
    problem |= reserve(&into.columns[KEY_VALIDITY], rows // 8 + 1)
    problem |= reserve(&into.columns[VALUE_VALIDITY], rows // 8 + 1)
    problem |= reserve(&into.columns[KEY_DATA], data_bytes)
    problem |= reserve(&into.columns[VALUE_DATA], data_bytes)
    return FINE if problem == FINE else NO_MEMORY


cdef int put_row(table *into, record *current, int64_t offset, int64_t timestamp, bint with_headers) noexcept nogil:
    cdef int problem
    if with_headers and current.header_count:
        problem = put_headers(into, current)
        if problem != FINE:
            return problem
    put_int32(&into.columns[HEADER_LIST_OFFSETS], <int32_t>into.headers)
    put_int64(&into.columns[OFFSETS], offset)
    put_int64(&into.columns[TIMESTAMPS], timestamp)
    if current.key != NULL:
        put_bytes(&into.columns[KEY_DATA], current.key, current.key_length)
    else:
        into.key_nulls += 1
    put_int32(&into.columns[KEY_OFFSETS], <int32_t>into.columns[KEY_DATA].size)
    put_validity(&into.columns[KEY_VALIDITY], into.rows, current.key != NULL)
    if current.value != NULL:
        put_bytes(&into.columns[VALUE_DATA], current.value, current.value_length)
    else:
        into.value_nulls += 1
    put_int32(&into.columns[VALUE_OFFSETS], <int32_t>into.columns[VALUE_DATA].size)
    put_validity(&into.columns[VALUE_VALIDITY], into.rows, current.value != NULL)
    into.rows += 1
    return FINE


cdef int decode_records(
    table *into, batch *source, const uint8_t *at, int64_t length, int64_t first_offset, int64_t end_offset,
    bint with_headers
) noexcept nogil:
    cdef record current
    cdef int problem
    cdef int32_t i
    cdef int64_t offset, previous_delta = -1
    cdef const uint8_t *end = at + length
    cdef bint has_append_time = source.attributes & LOG_APPEND_TIME
    if source.count < 0:
        return NEGATIVE_COUNT
    if source.count > length // RECORD_BYTES_MIN:
        return TOO_FEW
    problem = reserve_rows(into, source.count, length)
    if problem != FINE:
        return problem
    for i in range(source.count):
        into.index = i
        problem = parse_record(at, end, &current)
        if problem != FINE:
            return problem
        if current.offset_delta <= previous_delta:
            return NOT_INCREASING
        if current.offset_delta > source.last_offset_delta:
            return BEYOND_LAST_OFFSET
        previous_delta = current.offset_delta
        at = current.end
        offset = source.base_offset + current.offset_delta
        if first_offset <= offset < end_offset:
            problem = put_row(
                into,
                &current,
                offset,
                source.max_timestamp if has_append_time
                else wrapping_add(source.base_timestamp, current.timestamp_delta),
                with_headers,
            )
            if problem != FINE:
                return problem
    return FINE if at == end else LEFT_OVER


cdef int decode_whole_batch(
    table *into, batch *source, const uint8_t *at, int64_t length, int64_t first_offset, int64_t end_offset,
    bint with_headers
) noexcept nogil:
    """Takes all the rows of a batch or, when something is wrong with it, none."""
    cdef table before
    cdef int i, problem
    memcpy(&before, into, sizeof(table))
    problem = decode_records(into, source, at, length, first_offset, end_offset, with_headers)
    if problem != FINE:
        for i in range(COLUMN_COUNT):
            into.columns[i].size = before.columns[i].size
        into.rows = before.rows
        into.headers = before.headers
        into.key_nulls = before.key_nulls
        into.value_nulls = before.value_nulls
        into.header_value_nulls = before.header_value_nulls
    return problem


cdef bint is_aborted(const abort *aborted, Py_ssize_t count, batch *current) noexcept nogil:
    """Whether the batch belongs to one of these transactions, sorted by producer and offset and not overlapping."""
    cdef Py_ssize_t low = 0, high = count, middle
    if not current.attributes & TRANSACTIONAL:
        return False
    while low < high:
        middle = (low + high) // 2
        if aborted[middle].producer_id < current.producer_id or (
            aborted[middle].producer_id == current.producer_id
            and aborted[middle].first_offset <= current.base_offset
        ):
            low = middle + 1
        else:
            high = middle
    return (
        low > 0
        and aborted[low - 1].producer_id == current.producer_id
        and aborted[low - 1].last_offset >= current.base_offset
    )


cdef class ColumnDecoder:
    """Turns batches into columns, batch by batch. See the reference for what each part means."""

    cdef table rows
    cdef int64_t first_offset
    cdef int64_t end_offset
    cdef int64_t column_bytes_max
    cdef bint with_headers
    cdef bint verify

    def __cinit__(
        self,
        first_offset: int = 0,
        end_offset: int = 2**63 - 1,
        with_headers: bool = True,
        *,
        verify: bool = True,
        column_bytes_max: int = COLUMN_BYTES_MAX,
    ) -> None:
        if not 0 < column_bytes_max <= COLUMN_BYTES_MAX:
            raise ValueError(f"column_bytes_max must be between 1 and {COLUMN_BYTES_MAX}, not {column_bytes_max}")
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.with_headers = with_headers
        self.verify = verify
        self.column_bytes_max = column_bytes_max
        self.start()

    def __dealloc__(self):
        for i in range(COLUMN_COUNT):
            free(self.rows.columns[i].data)

    def __len__(self) -> int:
        return self.rows.rows

    cdef object start(self):
        cdef int which
        self.rows.rows = self.rows.headers = 0
        self.rows.key_nulls = self.rows.value_nulls = self.rows.header_value_nulls = 0
        for which in (KEY_OFFSETS, VALUE_OFFSETS, HEADER_LIST_OFFSETS, HEADER_KEY_OFFSETS, HEADER_VALUE_OFFSETS):
            self.rows.columns[which].size = 0
            if reserve(&self.rows.columns[which], 4) != FINE:
                raise MemoryError
            put_int32(&self.rows.columns[which], 0)

    cdef bint is_full_for(self, int64_t records_bytes) noexcept nogil:
        """Whether the rows in `records_bytes` might not fit. A table without rows takes any batch it can address."""
        cdef size_t data_bytes = (
            self.rows.columns[KEY_DATA].size
            + self.rows.columns[VALUE_DATA].size
            + self.rows.columns[HEADER_KEY_DATA].size
            + self.rows.columns[HEADER_VALUE_DATA].size
        )
        return self.rows.rows > 0 and (
            <int64_t>data_bytes + records_bytes > self.column_bytes_max
            or self.rows.headers + records_bytes > self.column_bytes_max
        )

    cdef bint is_outside(self, batch *current) noexcept nogil:
        return (
            current.base_offset + current.last_offset_delta < self.first_offset
            or current.base_offset >= self.end_offset
        )

    cdef int decode_run(
        self, const uint8_t *at, int64_t length, const abort *aborted, Py_ssize_t aborted_count, int64_t *consumed
    ) noexcept nogil:
        cdef batch current
        cdef int problem
        cdef int64_t size
        while consumed[0] < length:
            problem = check_batch(at, length - consumed[0], False, &current)
            if problem != FINE:
                return problem
            size = <int64_t>current.length + PREFIX_BYTES
            if has_impossible_offsets(&current):
                return BAD_OFFSETS
            if not self.is_outside(&current):
                if self.verify and crc32c_compute(0, at + CRC_START, size - CRC_START) != current.crc:
                    return BAD_CRC
                if not current.attributes & CONTROL and not is_aborted(aborted, aborted_count, &current):
                    if current.attributes & CODEC_MASK or self.is_full_for(size - HEADER_BYTES):
                        return FINE
                    problem = decode_whole_batch(
                        &self.rows, &current, at + HEADER_BYTES, size - HEADER_BYTES, self.first_offset,
                        self.end_offset, self.with_headers
                    )
                    if problem != FINE:
                        return problem
            at += size
            consumed[0] += size
        return FINE

    def append_run(self, run, aborted=()) -> int:
        cdef Py_buffer view
        cdef growing aborts
        cdef abort entry
        cdef const uint8_t *at
        cdef int64_t consumed = 0
        cdef Py_ssize_t aborted_count = 0
        cdef int problem
        memset(&aborts, 0, sizeof(growing))
        PyObject_GetBuffer(run, &view, PyBUF_SIMPLE)
        try:
            for producer_id, first_offset, last_offset in sorted(aborted):
                entry.producer_id, entry.first_offset, entry.last_offset = producer_id, first_offset, last_offset
                if reserve(&aborts, sizeof(abort)) != FINE:
                    raise MemoryError
                put_bytes(&aborts, <const uint8_t *>&entry, sizeof(abort))
                aborted_count += 1
            # Most of a run is values: one allocation that can have huge pages, instead of growth that splits them.
            if reserve(&self.rows.columns[VALUE_DATA], min(<int64_t>view.len, self.column_bytes_max)) != FINE:
                raise MemoryError
            at = <const uint8_t *>view.buf
            if view.len >= GIL_BYTES:
                with nogil:
                    problem = self.decode_run(at, view.len, <const abort *>aborts.data, aborted_count, &consumed)
            else:
                problem = self.decode_run(at, view.len, <const abort *>aborts.data, aborted_count, &consumed)
        finally:
            free(aborts.data)
            PyBuffer_Release(&view)
        if consumed == 0 and problem not in (FINE, INCOMPLETE):
            raise_problem(problem, self.rows.index)
        return consumed

    def append_records(self, records, header) -> bool:
        cdef Py_buffer view
        cdef batch current
        cdef const uint8_t *at
        cdef int problem = FINE
        current.base_offset = header.base_offset
        current.attributes = header.attributes
        current.last_offset_delta = header.last_offset_delta
        current.base_timestamp = header.base_timestamp
        current.max_timestamp = header.max_timestamp
        current.count = header.count
        if has_impossible_offsets(&current):
            raise_problem(BAD_OFFSETS, 0)
        if current.attributes & CONTROL or self.is_outside(&current):
            return True
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        try:
            if view.len > COLUMN_BYTES_MAX:
                raise InvalidRecords(f"{view.len} bytes of records in one batch")
            if self.is_full_for(view.len):
                return False
            at = <const uint8_t *>view.buf
            with nogil:
                problem = decode_whole_batch(
                    &self.rows, &current, at, view.len, self.first_offset, self.end_offset, self.with_headers
                )
        finally:
            PyBuffer_Release(&view)
        if problem != FINE:
            raise_problem(problem, self.rows.index)
        return True

    def finish(self):
        cdef growing *columns = self.rows.columns
        cdef int64_t key_nulls = self.rows.key_nulls, value_nulls = self.rows.value_nulls
        cdef int64_t header_value_nulls = self.rows.header_value_nulls
        lent = [lend(&columns[which]) for which in range(COLUMN_COUNT)]
        count = self.rows.rows
        self.start()
        return Columns(
            count=count,
            offsets=lent[OFFSETS],
            timestamps=lent[TIMESTAMPS],
            key_offsets=lent[KEY_OFFSETS],
            key_data=lent[KEY_DATA],
            key_validity=lent[KEY_VALIDITY] if key_nulls else None,
            value_offsets=lent[VALUE_OFFSETS],
            value_data=lent[VALUE_DATA],
            value_validity=lent[VALUE_VALIDITY] if value_nulls else None,
            header_list_offsets=lent[HEADER_LIST_OFFSETS],
            header_key_offsets=lent[HEADER_KEY_OFFSETS],
            header_key_data=lent[HEADER_KEY_DATA],
            header_value_offsets=lent[HEADER_VALUE_OFFSETS],
            header_value_data=lent[HEADER_VALUE_DATA],
            header_value_validity=lent[HEADER_VALUE_VALIDITY] if header_value_nulls else None,
        )


cdef inline bint has_impossible_offsets(batch *current) noexcept nogil:
    return (
        current.base_offset < 0
        or current.last_offset_delta < 0
        or current.base_offset > INT64_MAX - 1 - current.last_offset_delta
    )
