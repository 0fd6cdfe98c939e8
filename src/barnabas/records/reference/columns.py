"""Records to Arrow-shaped columns and back; the layout is in `barnabas.records.results`."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from crc32c import crc32c

from barnabas.base.buffers import Buffer
from barnabas.base.errors import CorruptBatch, InvalidRecords
from barnabas.base.ids import NO_TIMESTAMP
from barnabas.records.batch import CRC_START, HEADER_BYTES, BatchHeader, read_header
from barnabas.records.builder import encode_varint
from barnabas.records.reference.parse import ParsedRecord, parse_records, wrap_int64
from barnabas.records.reference.walk import header_problem
from barnabas.records.results import COLUMN_BYTES_MAX, RECORD_BYTES_MIN, Columns

AbortedTransaction = tuple[int, int, int]
"""(producer id, first offset, last offset)."""

OFFSET_MAX = 2**63 - 2
RECORD_LENGTH_MAX = 2**31 - 1


class _Binary:
    """A growing column of byte strings and nulls."""

    def __init__(self) -> None:
        self.offsets = array("i", [0])
        self.data = bytearray()
        self.is_valid = bytearray()

    def append(self, content: Buffer | None) -> None:
        if content is not None:
            self.data += content
        self.offsets.append(len(self.data))
        self.is_valid.append(content is not None)

    def validity(self) -> memoryview | None:
        if all(self.is_valid):
            return None
        bits = sum(1 << row for row, is_valid in enumerate(self.is_valid) if is_valid)
        return memoryview(bits.to_bytes((len(self.is_valid) + 7) // 8, "little"))


class ColumnDecoder:
    """Turns batches into columns, batch by batch: a batch is taken as a whole or not at all.

    Only offsets in [first_offset, end_offset) become rows; control batches become none. With log-append time
    every record has the batch's largest timestamp. The columns stay within `column_bytes_max`, except that a
    first batch is always taken, so that the decoder cannot get stuck. `verify` checks each batch's checksum.
    """

    def __init__(
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
        self._first_offset = first_offset
        self._end_offset = end_offset
        self._with_headers = with_headers
        self._verify = verify
        self._column_bytes_max = column_bytes_max
        self._start()

    def __len__(self) -> int:
        """Rows so far."""
        return len(self._offsets)

    def _start(self) -> None:
        self._offsets = array("q")
        self._timestamps = array("q")
        self._keys = _Binary()
        self._values = _Binary()
        self._header_lists = array("i", [0])
        self._header_keys = _Binary()
        self._header_values = _Binary()

    def append_run(self, run: Buffer, aborted: Iterable[AbortedTransaction] = ()) -> int:
        """Decodes batches from the start of `run` and returns how many bytes they have.

        It stops before a compressed batch (decompress it and give it to `append_records`), before one that is
        incomplete, and before one that would grow the columns too large. A bad batch raises `CorruptBatch`
        when it is the first, else it too is stopped at. Batches of the `aborted` transactions, which do not
        overlap for one producer, become no rows.
        """
        view = memoryview(run)
        transactions = sorted(aborted)
        position = 0
        while len(view) - position >= HEADER_BYTES:
            header = read_header(view, position)
            try:
                if problem := header_problem(header):
                    raise CorruptBatch(problem)
                if header.size_bytes > len(view) - position:
                    break
                if not self._append_batch(header, view[position : position + header.size_bytes], transactions):
                    break
            except CorruptBatch:
                if position == 0:
                    raise
                break
            position += header.size_bytes
        return position

    def _append_batch(self, header: BatchHeader, batch: memoryview, aborted: list[AbortedTransaction]) -> bool:
        """Whether the batch is done with, its rows taken or not wanted."""
        _check_offsets(header)
        if self._is_outside(header):
            return True
        if self._verify and crc32c(batch[CRC_START:]) != header.crc:
            raise CorruptBatch("the checksum does not match")
        if header.is_control or _is_aborted(header, aborted):
            return True
        if header.codec_number:
            return False
        return self.append_records(batch[HEADER_BYTES:], header)

    def append_records(self, records: Buffer, header: BatchHeader) -> bool:
        """Decodes the decompressed records of the batch with this header; False when the columns are full."""
        _check_offsets(header)
        if header.is_control or self._is_outside(header):
            return True
        if len(records) > COLUMN_BYTES_MAX:
            raise InvalidRecords(f"{len(records)} bytes of records in one batch")
        if self._is_full_for(len(records)):
            return False
        if header.count > len(records) // RECORD_BYTES_MIN:
            raise InvalidRecords("the records end before their count is reached")
        rows = []
        previous_delta = -1
        for record in parse_records(memoryview(records), header.count):
            if record.offset_delta <= previous_delta:
                raise InvalidRecords("the offset deltas do not increase")
            if record.offset_delta > header.last_offset_delta:
                raise InvalidRecords("the offset delta is beyond the batch's last one")
            previous_delta = record.offset_delta
            if self._first_offset <= header.base_offset + record.offset_delta < self._end_offset:
                rows.append(record)
        for record in rows:
            self._append_row(record, header)
        return True

    def _append_row(self, record: ParsedRecord, header: BatchHeader) -> None:
        self._offsets.append(header.base_offset + record.offset_delta)
        self._timestamps.append(
            header.max_timestamp
            if header.is_log_append_time
            else wrap_int64(header.base_timestamp + record.timestamp_delta)
        )
        self._keys.append(record.key)
        self._values.append(record.value)
        if self._with_headers:
            for key, value in record.headers:
                self._header_keys.append(key)
                self._header_values.append(value)
        self._header_lists.append(len(self._header_keys.is_valid))

    def _is_outside(self, header: BatchHeader) -> bool:
        return header.last_offset < self._first_offset or header.base_offset >= self._end_offset

    def _is_full_for(self, records_bytes: int) -> bool:
        """Whether the rows in `records_bytes` might not fit."""
        binaries = (self._keys, self._values, self._header_keys, self._header_values)
        data_bytes = sum(len(binary.data) for binary in binaries)
        return len(self) > 0 and (
            data_bytes + records_bytes > self._column_bytes_max
            or len(self._header_keys.is_valid) + records_bytes > self._column_bytes_max
        )

    def finish(self) -> Columns:
        """Returns the columns so far and empties the decoder."""
        columns = Columns(
            count=len(self._offsets),
            offsets=memoryview(self._offsets).cast("B"),
            timestamps=memoryview(self._timestamps).cast("B"),
            key_offsets=memoryview(self._keys.offsets).cast("B"),
            key_data=memoryview(self._keys.data),
            key_validity=self._keys.validity(),
            value_offsets=memoryview(self._values.offsets).cast("B"),
            value_data=memoryview(self._values.data),
            value_validity=self._values.validity(),
            header_list_offsets=memoryview(self._header_lists).cast("B"),
            header_key_offsets=memoryview(self._header_keys.offsets).cast("B"),
            header_key_data=memoryview(self._header_keys.data),
            header_value_offsets=memoryview(self._header_values.offsets).cast("B"),
            header_value_data=memoryview(self._header_values.data),
            header_value_validity=self._header_values.validity(),
        )
        self._start()
        return columns


def _check_offsets(header: BatchHeader) -> None:
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.last_offset > OFFSET_MAX:
        raise CorruptBatch("the offsets are impossible")


def _is_aborted(header: BatchHeader, aborted: list[AbortedTransaction]) -> bool:
    if not header.is_transactional:
        return False
    after = bisect_right(aborted, (header.producer_id, header.base_offset, OFFSET_MAX + 1))
    if not after:
        return False
    producer_id, _, last_offset = aborted[after - 1]
    return producer_id == header.producer_id and last_offset >= header.base_offset


class BinaryView:
    """A finished column of byte strings, whose buffers may contradict each other."""

    def __init__(self, offsets: Buffer, data: Buffer, validity: Buffer | None, rows: int | None) -> None:
        self._offsets = whole_numbers(offsets)
        self._data = memoryview(data)
        self._validity = None if validity is None else memoryview(validity)
        if rows is not None:
            check_room(offsets, (rows + 1) * 4)
            if validity is not None:
                check_room(validity, (rows + 7) // 8)

    def __getitem__(self, row: int) -> memoryview | None:
        if self._validity is not None:
            if row >> 3 >= len(self._validity):
                raise ValueError("a validity bitmap is too short")
            if not self._validity[row >> 3] >> (row & 7) & 1:
                return None
        if row + 1 >= len(self._offsets):
            raise ValueError("an offsets buffer is too short")
        start, stop = self._offsets[row], self._offsets[row + 1]
        if not 0 <= start <= stop <= len(self._data):
            raise ValueError("an offset lies outside its data")
        return self._data[start:stop]


def whole_numbers(buffer: Buffer) -> memoryview:
    """The int32 numbers of a buffer whose own items may be anything."""
    octets = memoryview(buffer).cast("B")
    return octets[: len(octets) // 4 * 4].cast("i")


def check_room(buffer: Buffer, bytes_min: int) -> None:
    size = memoryview(buffer).nbytes
    if size < bytes_min:
        raise ValueError(f"a column has {size} bytes, but its rows need {bytes_min}")


def encode_records(
    columns: Columns, start: int, stop: int, base_timestamp: int, max_bytes: int, rows: Buffer | None = None
) -> tuple[bytes, int, int]:
    """(records section, rows encoded, largest timestamp) for as many rows from `start` on as fit; at least
    one.

    With `rows` (int32 each) these are the rows to take, in this order, and `start` and `stop` are places in it. Row
    `start` has offset delta 0. Columns that contradict themselves, headers without a key and rows too large for a
    record raise `ValueError`.
    """
    count = columns.count
    order: Sequence[int] = range(count)
    if rows is not None:
        order = whole_numbers(rows)
    if not 0 <= start <= stop <= len(order):
        raise ValueError(f"rows {start} to {stop} of {len(order)}")
    check_room(columns.timestamps, count * 8)
    check_room(columns.header_list_offsets, (count + 1) * 4)
    timestamps = memoryview(columns.timestamps).cast("B")[: count * 8].cast("q")
    header_lists = memoryview(columns.header_list_offsets).cast("B")[: (count + 1) * 4].cast("i")
    keys = BinaryView(columns.key_offsets, columns.key_data, columns.key_validity, count)
    values = BinaryView(columns.value_offsets, columns.value_data, columns.value_validity, count)
    header_keys = BinaryView(columns.header_key_offsets, columns.header_key_data, None, None)
    header_values = BinaryView(
        columns.header_value_offsets, columns.header_value_data, columns.header_value_validity, None
    )
    records = bytearray()
    max_timestamp = NO_TIMESTAMP
    place = start
    for place in range(start, stop):
        row = order[place]
        if not 0 <= row < count:
            raise ValueError(f"there is no row {row} among {count}")
        first, last = header_lists[row], header_lists[row + 1]
        if not 0 <= first <= last:
            raise ValueError(f"row {row}: the header list is impossible")
        body = bytearray(b"\x00")
        body += encode_varint(wrap_int64(timestamps[row] - base_timestamp))
        body += encode_varint(place - start)
        _put_bytes(body, keys[row])
        _put_bytes(body, values[row])
        body += encode_varint(last - first)
        for index in range(first, last):
            header_key = header_keys[index]
            if header_key is None:
                raise ValueError(f"row {row}: a header without a key")
            _put_bytes(body, header_key)
            _put_bytes(body, header_values[index])
        if len(body) > RECORD_LENGTH_MAX:
            raise ValueError(f"row {row}: it is too large for a record")
        record = encode_varint(len(body)) + body
        if place > start and len(records) + len(record) > max_bytes:
            break
        records += record
        max_timestamp = timestamps[row] if place == start else max(max_timestamp, timestamps[row])
    else:
        place = stop
    return bytes(records), place - start, max_timestamp


def _put_bytes(body: bytearray, content: memoryview | None) -> None:
    body += encode_varint(-1 if content is None else len(content))
    if content is not None:
        body += content
