# Arrow-shaped columns to records. The columns are the caller's, but nothing in them is trusted.

cdef struct binary:
    # One column of byte strings: int32 offsets into data, and a bitmap or NULL.
    const uint8_t *offsets
    const uint8_t *data
    const uint8_t *validity
    int64_t rows
    int64_t data_bytes
    int64_t validity_bytes


cdef struct source_columns:
    const uint8_t *timestamps
    const uint8_t *header_list_offsets
    binary key
    binary value
    binary header_key
    binary header_value


cdef inline int64_t value_at(const binary *column, int64_t row, const uint8_t **data) noexcept nogil:
    """The length of the value and where it is; -1 for null, -2 when the buffers contradict each other."""
    cdef int64_t start, stop
    if column.validity != NULL:
        if row >> 3 >= column.validity_bytes:
            return -2
        if not (column.validity[row >> 3] >> (row & 7)) & 1:
            return -1
    if row >= column.rows:
        return -2
    start = load_int32(column.offsets + row * 4)
    stop = load_int32(column.offsets + row * 4 + 4)
    if start < 0 or stop < start or stop > column.data_bytes:
        return -2
    data[0] = column.data + start
    return stop - start


cdef inline int64_t field_bytes(int64_t length) noexcept nogil:
    return varint_bytes(length) + (length if length > 0 else 0)


cdef int64_t row_bytes(const source_columns *source, int64_t row, int64_t delta, int64_t base_timestamp) noexcept nogil:
    """Bytes of the record without its length, or -1 when the columns cannot be encoded."""
    cdef const uint8_t *ignored = NULL
    cdef int64_t i, length, first = load_int32(source.header_list_offsets + row * 4)
    cdef int64_t stop = load_int32(source.header_list_offsets + row * 4 + 4)
    cdef int64_t size = 1 + varint_bytes(delta) + varint_bytes(
        wrapping_subtract(load_int64(source.timestamps + row * 8), base_timestamp)
    )
    if first < 0 or stop < first:
        return -1
    length = value_at(&source.key, row, &ignored)
    if length < -1:
        return -1
    size += field_bytes(length)
    length = value_at(&source.value, row, &ignored)
    if length < -1:
        return -1
    size += field_bytes(length) + varint_bytes(stop - first)
    for i in range(first, stop):
        length = value_at(&source.header_key, i, &ignored)
        if length < 0:
            return -1
        size += field_bytes(length)
        length = value_at(&source.header_value, i, &ignored)
        if length < -1:
            return -1
        size += field_bytes(length)
        if size > 0x7FFFFFFF:
            return -1
    return size if size <= 0x7FFFFFFF else -1


cdef inline uint8_t *write_field(uint8_t *at, const binary *column, int64_t row) noexcept nogil:
    cdef const uint8_t *data = NULL
    cdef int64_t length = value_at(column, row, &data)
    at = write_varint(at, length)
    if length > 0:
        memcpy(at, data, length)
        at += length
    return at


cdef uint8_t *write_row(
    uint8_t *at, const source_columns *source, int64_t row, int64_t delta, int64_t base_timestamp, int64_t size
) noexcept nogil:
    cdef int64_t i, first = load_int32(source.header_list_offsets + row * 4)
    cdef int64_t stop = load_int32(source.header_list_offsets + row * 4 + 4)
    at = write_varint(at, size)
    at[0] = 0
    at = write_varint(at + 1, wrapping_subtract(load_int64(source.timestamps + row * 8), base_timestamp))
    at = write_varint(at, delta)
    at = write_field(at, &source.key, row)
    at = write_field(at, &source.value, row)
    at = write_varint(at, stop - first)
    for i in range(first, stop):
        at = write_field(at, &source.header_key, i)
        at = write_field(at, &source.header_value, i)
    return at


cdef inline int64_t row_at(const uint8_t *order, int64_t place) noexcept nogil:
    return place if order == NULL else load_int32(order + place * 4)


cdef int measure_rows(
    const source_columns *source, const uint8_t *order, int64_t row_count, int64_t start, int64_t stop,
    int64_t base_timestamp, int64_t max_bytes, growing *sizes, int64_t *total, int64_t *max_timestamp
) noexcept nogil:
    """Puts the sizes of the rows that fit into `sizes`: the first always, the others while the total allows."""
    cdef int64_t place, row, size, timestamp
    for place in range(start, stop):
        row = row_at(order, place)
        if row < 0 or row >= row_count:
            return BAD_COLUMNS
        size = row_bytes(source, row, place - start, base_timestamp)
        if size < 0:
            return BAD_COLUMNS
        if place > start and total[0] + varint_bytes(size) + size > max_bytes:
            return FINE
        if reserve(sizes, 4) != FINE:
            return NO_MEMORY
        put_int32(sizes, <int32_t>size)
        total[0] += varint_bytes(size) + size
        timestamp = load_int64(source.timestamps + row * 8)
        if place == start or timestamp > max_timestamp[0]:
            max_timestamp[0] = timestamp
    return FINE


cdef void write_rows(
    uint8_t *at, const source_columns *source, const uint8_t *order, int64_t start, int64_t rows,
    int64_t base_timestamp, growing *sizes
) noexcept nogil:
    cdef int64_t delta, row
    for delta in range(rows):
        row = row_at(order, start + delta)
        at = write_row(at, source, row, delta, base_timestamp, load_int32(sizes.data + delta * 4))


cdef class LentColumns:
    """Holds the buffers of a `Columns` while C reads them."""

    cdef Py_buffer views[COLUMN_COUNT]  # offsets are not among them, which leaves room for an order of rows
    cdef int held
    cdef source_columns source

    def __cinit__(self, columns):
        cdef int64_t count = columns.count
        self.source.timestamps = self.hold(columns.timestamps, count * 8)
        self.source.header_list_offsets = self.hold(columns.header_list_offsets, (count + 1) * 4)
        self.hold_binary(
            &self.source.key, columns.key_offsets, columns.key_data, columns.key_validity, count
        )
        self.hold_binary(
            &self.source.value, columns.value_offsets, columns.value_data, columns.value_validity, count
        )
        self.hold_binary(&self.source.header_key, columns.header_key_offsets, columns.header_key_data, None, -1)
        self.hold_binary(
            &self.source.header_value,
            columns.header_value_offsets,
            columns.header_value_data,
            columns.header_value_validity,
            -1,
        )

    def __dealloc__(self):
        while self.held:
            self.held -= 1
            PyBuffer_Release(&self.views[self.held])

    cdef const uint8_t *hold(self, object buffer, int64_t bytes_min) except? NULL:
        cdef Py_buffer *view = &self.views[self.held]
        PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
        self.held += 1
        if view.len < bytes_min:
            raise ValueError(f"a column has {view.len} bytes, but its rows need {bytes_min}")
        return <const uint8_t *>view.buf

    cdef int hold_binary(self, binary *into, object offsets, object data, object validity, int64_t count) except -1:
        into.offsets = self.hold(offsets, (count + 1) * 4)
        into.rows = self.views[self.held - 1].len // 4 - 1
        into.data = self.hold(data, 0)
        into.data_bytes = self.views[self.held - 1].len
        into.validity = NULL
        if validity is not None:
            into.validity = self.hold(validity, (count + 7) // 8 if count >= 0 else 0)
            into.validity_bytes = self.views[self.held - 1].len
        return 0


def encode_records(columns, start: int, stop: int, base_timestamp: int, max_bytes: int, rows=None):
    """(records section, rows encoded, largest timestamp) for as many rows from `start` on as fit; at least one."""
    cdef LentColumns lent
    cdef const uint8_t *order = NULL
    cdef int64_t row_count = columns.count, places = row_count
    cdef growing sizes
    cdef int64_t first = start, end = stop, base = base_timestamp, bytes_max = max_bytes
    cdef int64_t total = 0, max_timestamp = -1, taken = 0
    cdef uint8_t *at
    cdef int problem
    lent = LentColumns(columns)
    if rows is not None:
        order = lent.hold(rows, 0)
        places = lent.views[lent.held - 1].len // 4
    if not 0 <= start <= stop <= places:
        raise ValueError(f"rows {start} to {stop} of {places}")
    memset(&sizes, 0, sizeof(growing))
    try:
        with nogil:
            problem = measure_rows(
                &lent.source, order, row_count, first, end, base, bytes_max, &sizes, &total, &max_timestamp
            )
            taken = sizes.size // 4
        if problem == NO_MEMORY:
            raise MemoryError
        if problem != FINE:
            raise ValueError(f"row {row_at(order, first + taken)}: the columns contradict each other, or the row is too large")
        records = PyBytes_FromStringAndSize(NULL, total)
        at = <uint8_t *>PyBytes_AS_STRING(records)
        with nogil:
            write_rows(at, &lent.source, order, first, taken, base, &sizes)
        return records, taken, max_timestamp
    finally:
        free(sizes.data)
