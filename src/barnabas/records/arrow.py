"""`Columns` as a pyarrow record batch and back, without copying what need not be copied.

```
key        binary
value      binary
timestamp  timestamp[ms, UTC]
offset     int64
headers    list<struct<key: string, value: binary>>
```

pyarrow is an extra (`pip install barnabas[arrow]`); this module is the only one that imports it.
"""

from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from barnabas.base.buffers import Buffer
from barnabas.base.ids import NO_TIMESTAMP
from barnabas.records.results import Columns

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("headers", pa.list_(pa.field("item", HEADER_TYPE, nullable=False)), nullable=False),
    ]
)


def to_arrow(columns: Columns) -> pa.RecordBatch:
    """The columns as a record batch that shares their memory and keeps it alive."""
    header_keys = _header_keys(columns)
    header_values = _wrap_binary(
        pa.binary(),
        len(header_keys),
        columns.header_value_offsets,
        columns.header_value_data,
        columns.header_value_validity,
    )
    headers = pa.StructArray.from_arrays([header_keys, header_values], fields=list(HEADER_TYPE))
    return pa.RecordBatch.from_arrays(
        [
            _wrap_binary(pa.binary(), columns.count, columns.key_offsets, columns.key_data, columns.key_validity),
            _wrap_binary(pa.binary(), columns.count, columns.value_offsets, columns.value_data, columns.value_validity),
            pa.Array.from_buffers(
                SCHEMA.field("timestamp").type, columns.count, [None, pa.py_buffer(columns.timestamps)]
            ),
            pa.Array.from_buffers(pa.int64(), columns.count, [None, pa.py_buffer(columns.offsets)]),
            pa.Array.from_buffers(
                SCHEMA.field("headers").type,
                columns.count,
                [None, pa.py_buffer(columns.header_list_offsets)],
                children=[headers],
            ),
        ],
        schema=SCHEMA,
    )


def _header_keys(columns: Columns) -> pa.Array:
    """Arrow's strings must be UTF-8; a key that is not gets replacement characters, as in Java's clients."""
    count = len(columns.header_key_offsets) // 4 - 1
    wrapped = _wrap_binary(pa.binary(), count, columns.header_key_offsets, columns.header_key_data, None)
    try:
        return wrapped.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in wrapped.to_pylist()], pa.string())


def _wrap_binary(kind: pa.DataType, count: int, offsets: Buffer, data: Buffer, validity: Buffer | None) -> pa.Array:
    bitmap = None if validity is None else pa.py_buffer(validity)
    return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])


def from_arrow(batch: pa.RecordBatch, *, default_timestamp_ms: int = NO_TIMESTAMP) -> Columns:
    """The columns of a record batch that has at least a `value`, for `encode_records`.

    Strings serve as binary, and other units and zones of timestamps are converted. A missing or null
    timestamp becomes `default_timestamp_ms`, a missing offset -1. A type that cannot serve raises
    `ValueError`, and so does a header without a key.
    """
    count = batch.num_rows
    names = batch.schema.names
    if "value" not in names:
        raise ValueError("the record batch has no column 'value'")
    no_keys = pa.nulls(count, pa.binary())
    key_offsets, key_data, key_validity = _binary(batch.column("key") if "key" in names else no_keys, "key")
    value_offsets, value_data, value_validity = _binary(batch.column("value"), "value")
    if "headers" in names and batch.column("headers").null_count < count:
        lists, keys, values = _headers(batch.column("headers"))
    else:
        lists, keys, values = bytes(4 * (count + 1)), no_keys.slice(0, 0), no_keys.slice(0, 0)
    header_key_offsets, header_key_data, _ = _binary(keys, "headers.key")
    header_value_offsets, header_value_data, header_value_validity = _binary(values, "headers.value")
    return Columns(
        count=count,
        offsets=_int64(batch.column("offset"), "offset", -1) if "offset" in names else b"\xff" * (8 * count),
        timestamps=_timestamps(
            batch.column("timestamp") if "timestamp" in names else pa.nulls(count, pa.int64()),
            default_timestamp_ms,
        ),
        key_offsets=key_offsets,
        key_data=key_data,
        key_validity=key_validity,
        value_offsets=value_offsets,
        value_data=value_data,
        value_validity=value_validity,
        header_list_offsets=lists,
        header_key_offsets=header_key_offsets,
        header_key_data=header_key_data,
        header_value_offsets=header_value_offsets,
        header_value_data=header_value_data,
        header_value_validity=header_value_validity,
    )


def _cast(array: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column '{name}' of type {array.type} cannot serve as {kind}: {error}") from error


def _binary(array: pa.Array, name: str) -> tuple[Buffer, Buffer, Buffer | None]:
    """(offsets, data, validity) of an array, from its first row on."""
    array = _cast(array, pa.binary(), name)
    validity, offsets, data = array.buffers()
    if not len(array):
        return bytes(4), b"", None
    start = array.offset
    return (
        memoryview(offsets)[start * 4 : (start + len(array) + 1) * 4],
        b"" if data is None else memoryview(data),
        None if array.null_count == 0 else _aligned_bitmap(memoryview(validity), start, len(array)),
    )


def _aligned_bitmap(bitmap: memoryview, start: int, count: int) -> Buffer:
    """The bits from `start` on, so that the first row has the first bit."""
    part = bitmap[start // 8 : (start + count + 7) // 8]
    if start % 8 == 0:
        return part
    bits = int.from_bytes(part, "little") >> (start % 8)
    return bits.to_bytes(len(part), "little")


def _int64(array: pa.Array, name: str, default: int) -> Buffer:
    if array.type != pa.int64():
        array = _cast(array, pa.int64(), name)
    if array.null_count:
        array = array.fill_null(default)
    if not len(array):
        return b""
    return memoryview(array.buffers()[1])[array.offset * 8 : (array.offset + len(array)) * 8]


def _timestamps(array: pa.Array, default_ms: int) -> Buffer:
    if pa.types.is_timestamp(array.type):
        if array.type.unit != "ms":
            array = pc.cast(array, pa.timestamp("ms", array.type.tz), safe=False)
        array = array.view(pa.int64())
    return _int64(array, "timestamp", default_ms)


def _headers(array: pa.Array) -> tuple[Buffer, pa.Array, pa.Array]:
    """(list offsets, header keys, header values); the offsets count from the first row of keys and values."""
    kind: Any = array.type
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        raise ValueError(f"column 'headers' of type {kind} is not a list of structs")
    if array.null_count:
        # The entries of a null list are undefined, so the offsets are recomputed without them.
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        sums = pc.cumulative_sum(lengths).cast(pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), sums])
        entries = array.flatten()
    else:
        offsets, entries = array.offsets, array.values
    names = [field.name for field in kind.value_type]
    if "key" not in names or "value" not in names:
        raise ValueError(f"column 'headers' has structs of {names}, not of key and value")
    fields = dict(zip(names, entries.flatten(), strict=True))
    first, last = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
    if fields["key"].slice(first, last - first).null_count:
        raise ValueError("column 'headers' has a header without a key")
    lists = memoryview(offsets.buffers()[1])[offsets.offset * 4 : (offsets.offset + len(offsets)) * 4]
    return lists, fields["key"], fields["value"]
