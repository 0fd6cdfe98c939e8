# Which partition each row of a column goes to, and the rows in the order of their partitions.

cdef uint32_t murmur2_of(const uint8_t *at, int64_t length) noexcept nogil:
    cdef uint32_t multiplier = <uint32_t>0x5BD1E995
    cdef uint32_t hashed = <uint32_t>0x9747B28C ^ <uint32_t>length
    cdef uint32_t word
    cdef const uint8_t *whole_end = at + (length & ~<int64_t>3)
    while at < whole_end:
        word = <uint32_t>load_int32(at) * multiplier
        word = (word ^ (word >> 24)) * multiplier
        hashed = (hashed * multiplier) ^ word
        at += 4
    length &= 3
    if length:
        word = at[0]
        if length > 1:
            word |= <uint32_t>at[1] << 8
        if length > 2:
            word |= <uint32_t>at[2] << 16
        hashed = (hashed ^ word) * multiplier
    hashed = (hashed ^ (hashed >> 13)) * multiplier
    return hashed ^ (hashed >> 15)


def murmur2(data) -> int:
    """The 32-bit hash of Kafka's default partitioner, as an unsigned number."""
    cdef Py_buffer view
    cdef uint32_t hashed
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        hashed = murmur2_of(<const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return hashed


cdef int64_t choose_partitions(
    const source_columns *source, int64_t count, int32_t partition_count, const uint8_t *chosen,
    const int32_t *keyless, int64_t keyless_count, int64_t keyless_run_rows,
    int32_t *partitions, int64_t *dealt
) noexcept nogil:
    """Fills `partitions` and counts the rows that were dealt out; returns the first bad row, or -1."""
    cdef int64_t row, length
    cdef int32_t partition
    cdef const uint8_t *data = NULL
    for row in range(count):
        if chosen != NULL:
            partition = load_int32(chosen + row * 4)
            if partition >= 0:
                if partition >= partition_count:
                    return row
                partitions[row] = partition
                continue
            if partition != -1:
                return row
        length = value_at(&source.key, row, &data)
        if length < -1:
            return row
        if length < 0:
            partitions[row] = keyless[(dealt[0] // keyless_run_rows) % keyless_count]
            dealt[0] += 1
        else:
            partitions[row] = <int32_t>((murmur2_of(data, length) & 0x7FFFFFFF) % <uint32_t>partition_count)
    return -1


cdef void sort_rows(
    const int32_t *partitions, int64_t count, int64_t partition_count, int64_t *bounds, int32_t *rows
) noexcept nogil:
    """A stable counting sort. `bounds` has a slot more than it returns: row positions while it runs."""
    cdef int64_t row, index
    for row in range(count):
        bounds[partitions[row] + 2] += 1
    for index in range(2, partition_count + 1):
        bounds[index] += bounds[index - 1]
    for row in range(count):
        rows[bounds[partitions[row] + 1]] = <int32_t>row
        bounds[partitions[row] + 1] += 1


def partition_rows(columns, partition_count: int, chosen, keyless, keyless_run_rows: int):
    """`PartitionedRows` of the columns; see the reference for the rules."""
    cdef LentColumns lent
    cdef Py_buffer view
    cdef const uint8_t *chosen_at = NULL
    cdef int64_t count = columns.count, partitions_max = partition_count, run_rows = keyless_run_rows
    cdef int64_t keyless_count = len(keyless), dealt = 0, bad_row = -1, index
    cdef int32_t *partitions = NULL
    cdef int32_t *dealt_to = NULL
    cdef int64_t *bounds = NULL
    cdef int32_t *sorted_rows
    if not 0 < partition_count <= 0x7FFFFFFF or run_rows < 1 or not keyless_count:
        raise ValueError("there must be partitions, also for rows without a key, and rows in a run")
    if not all(0 <= partition < partition_count for partition in keyless):
        raise ValueError(f"rows without a key cannot go to {list(keyless)} of {partition_count} partitions")
    if count > 0x7FFFFFFF:
        raise ValueError(f"{count} rows are more than int32 counts")
    lent = LentColumns(columns)
    if chosen is not None:
        PyObject_GetBuffer(chosen, &view, PyBUF_SIMPLE)
        chosen_at = <const uint8_t *>view.buf
    try:
        if chosen is not None and view.len < count * 4:
            raise ValueError(f"a column has {view.len} bytes, but its rows need {count * 4}")
        partitions = <int32_t *>calloc(count + 1, 4)
        dealt_to = <int32_t *>calloc(keyless_count, 4)
        bounds = <int64_t *>calloc(partitions_max + 2, 8)
        if partitions == NULL or dealt_to == NULL or bounds == NULL:
            raise MemoryError
        for index in range(keyless_count):
            dealt_to[index] = keyless[index]
        rows = PyBytes_FromStringAndSize(NULL, count * 4)
        sorted_rows = <int32_t *>PyBytes_AS_STRING(rows)
        with nogil:
            bad_row = choose_partitions(
                &lent.source, count, <int32_t>partitions_max, chosen_at, dealt_to, keyless_count, run_rows,
                partitions, &dealt
            )
            if bad_row < 0:
                sort_rows(partitions, count, partitions_max, bounds, sorted_rows)
        if bad_row >= 0:
            partition = load_int32(chosen_at + bad_row * 4) if chosen_at != NULL else -1
            if partition == -1:
                raise ValueError("the key column contradicts itself")
            raise NoSuchPartition(bad_row, partition, partition_count)
        return PartitionedRows(rows, [bounds[index] for index in range(partitions_max + 1)], dealt)
    finally:
        free(partitions)
        free(dealt_to)
        free(bounds)
        if chosen is not None:
            PyBuffer_Release(&view)
