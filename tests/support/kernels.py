"""Both forms of the record kernel, for tests that hold them to one behaviour, and the bytes to feed them with."""

from collections.abc import Iterable
from typing import Any

import pytest

from barnabas.records import kernel as chosen
from barnabas.records import reference
from barnabas.records.batch import HEADER_BYTES, Codec, read_header
from barnabas.records.builder import BatchBuilder, encode_varint
from barnabas.records.results import Columns

KERNELS: list[Any] = [reference]
if chosen.IS_COMPILED:
    from barnabas.records import _kernel

    KERNELS.append(_kernel)

each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda module: module.__name__.rpartition(".")[2])

Row = tuple[int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]
"""(offset, timestamp, key, value, headers) of a row of columns."""


def encode_record(
    offset_delta: int,
    *,
    timestamp_delta: int = 0,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    headers: Iterable[tuple[bytes | None, bytes | None]] = (),
    attributes: int = 0,
) -> bytes:
    headers = list(headers)
    body = bytes([attributes]) + encode_varint(timestamp_delta) + encode_varint(offset_delta)
    body += sized(key) + sized(value) + encode_varint(len(headers))
    for header_key, header_value in headers:
        body += sized(header_key) + sized(header_value)
    return encode_varint(len(body)) + body


def sized(content: bytes | None) -> bytes:
    return encode_varint(-1) if content is None else encode_varint(len(content)) + content


def build_batch(
    count: int, base_offset: int = 0, *, codec: Codec = Codec.NONE, value_bytes: int = 10, **fields: Any
) -> bytes:
    builder = BatchBuilder(codec=codec, base_offset=base_offset, **fields)
    for index in range(count):
        builder.append(1000 + index, b"key-%d" % (base_offset + index), bytes([index % 256]) * value_bytes)
    return bytes(builder.build())


def records_of(batch: bytes) -> bytes:
    return batch[HEADER_BYTES : read_header(batch).size_bytes]


def rows_of(columns: Columns) -> list[Row]:
    """The columns as Python objects, read in the plainest way."""
    offsets = memoryview(columns.offsets).cast("B").cast("q")
    timestamps = memoryview(columns.timestamps).cast("B").cast("q")
    lists = memoryview(columns.header_list_offsets).cast("B").cast("i")
    assert len(offsets) == len(timestamps) == columns.count
    assert len(lists) == columns.count + 1
    keys = _strings(columns.key_offsets, columns.key_data, columns.key_validity)
    values = _strings(columns.value_offsets, columns.value_data, columns.value_validity)
    header_keys = _strings(columns.header_key_offsets, columns.header_key_data, None)
    header_values = _strings(columns.header_value_offsets, columns.header_value_data, columns.header_value_validity)
    assert len(keys) == len(values) == columns.count
    assert len(header_keys) == len(header_values)
    headers = list(zip(header_keys, header_values, strict=True))
    return [
        (offsets[row], timestamps[row], keys[row], values[row], headers[lists[row] : lists[row + 1]])
        for row in range(columns.count)
    ]


def _strings(offsets: Any, data: Any, validity: Any) -> list[Any]:
    bounds = memoryview(offsets).cast("B").cast("i")
    strings: list[Any] = []
    for row in range(len(bounds) - 1):
        is_valid = validity is None or memoryview(validity)[row // 8] >> (row % 8) & 1
        strings.append(bytes(data[bounds[row] : bounds[row + 1]]) if is_valid else None)
    return strings
