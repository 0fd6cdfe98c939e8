"""The compiled kernel against its reference: on good bytes and on mutated ones, the same result or the same refusal."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import CorruptBatch, InvalidRecords
from barnabas.records import kernel as chosen
from barnabas.records import reference
from barnabas.records.batch import CRC_START, HEADER_BYTES, Codec, read_header
from barnabas.records.builder import BatchBuilder, Header, Record
from barnabas.records.checksum import compute_crc
from barnabas.records.columns import append_run, encode_batches
from barnabas.records.reader import read_records
from barnabas.records.results import Columns
from tests.support.kernels import Row, rows_of

compiled: Any = chosen
pytestmark = pytest.mark.skipif(not chosen.IS_COMPILED, reason="the kernel is not compiled, so there is one form of it")

INT64 = st.integers(-(2**63), 2**63 - 1)
SECRET = b"0123456789abcdef"

maybe_bytes = st.none() | st.binary(max_size=20) | st.integers(60, 200).map(bytes)
header_lists = st.lists(st.builds(Header, st.text(st.characters(codec="utf-8"), max_size=3), maybe_bytes), max_size=3)
timestamps = st.integers(-1, 2**62)


@st.composite
def batches(draw: st.DrawFn, base_offset: int | None = None, codec: Codec = Codec.NONE) -> bytes:
    """A batch as a producer or a compactor makes it."""
    base_offset = draw(st.integers(0, 2**62)) if base_offset is None else base_offset
    builder = BatchBuilder(
        codec=codec,
        base_offset=base_offset,
        producer_id=draw(st.integers(-1, 2)),
        is_transactional=draw(st.booleans()),
        append_time_ms=draw(st.none() | timestamps),
        delete_horizon_ms=draw(st.none() | timestamps),
    )
    offset = base_offset
    keys = st.none() | st.sampled_from([b"", b"a", b"b", b"long key" * 3])
    for gap in draw(st.lists(st.sampled_from([0, 0, 0, 1, 100]), min_size=1, max_size=12)):
        offset += gap
        builder.append(draw(timestamps), draw(keys), draw(maybe_bytes), draw(header_lists), offset)
        offset += 1
    return bytes(builder.build(last_offset=offset - 1 + draw(st.integers(0, 2))))


@st.composite
def mutated(draw: st.DrawFn, base: st.SearchStrategy[bytes]) -> bytes:
    """Bytes with a few of them changed, inserted, removed or doubled, as a careful attacker would."""
    data = bytearray(draw(base))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["set", "insert", "remove", "varint", "cut"])):
            case "set":
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "insert":
                data[at:at] = draw(st.binary(max_size=3))
            case "remove":
                del data[at : at + draw(st.integers(1, 3))]
            case "varint":
                data[at : at + 1] = draw(
                    st.sampled_from(
                        [b"\xff" * 5, b"\xfe\xff\xff\xff\x0f", b"\x80" * 9 + b"\x01", b"\xff\xff\xff\xff\x7f"]
                    )
                )
            case "cut":
                del data[at:]
    return bytes(data)


@st.composite
def runs(draw: st.DrawFn) -> bytes:
    """Batches in a row, some mutated; most of the time with checksums that fit, so that the structure is reached."""
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        batch = bytearray(draw(mutated(batches()) | batches()))
        if len(batch) > HEADER_BYTES and draw(st.integers(0, 3)):
            batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
            batch[CRC_START - 4 : CRC_START] = compute_crc(batch).to_bytes(4, "big")
        parts.append(bytes(batch))
    return b"".join(parts)


def outcome(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The result, or what was raised, in a form that compares."""
    try:
        result = function(*arguments, **named)
    except InvalidRecords as error:
        return "InvalidRecords", error.indexes
    except CorruptBatch:
        return "CorruptBatch"
    except ValueError:
        return "ValueError"
    return rows_of(result) if isinstance(result, Columns) else result


def records_and_header(batch: bytes) -> tuple[bytes, Any]:
    return batch[HEADER_BYTES:], read_header(batch)


@given(batches(), st.data())
def test_walk_of_mutated_records_agrees(batch: bytes, data: st.DataObject) -> None:
    records, header = records_and_header(batch)
    records = data.draw(mutated(st.just(records)) | st.binary(max_size=60))
    count = data.draw(st.sampled_from([header.count, header.count + 1, 1, 0, 2**31 - 1, -1]))
    rules = {
        "require_keys": data.draw(st.booleans()),
        "consecutive": data.draw(st.booleans()),
        "last_offset_delta": data.draw(st.none() | st.just(header.last_offset_delta) | st.integers(-1, 5)),
    }
    base_timestamp = data.draw(INT64)
    expected = outcome(reference.walk_records, records, count, base_timestamp, **rules)
    assert outcome(compiled.walk_records, records, count, base_timestamp, **rules) == expected

    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=6)))
    chunks = [records[start:end] for start, end in zip([0, *cuts], [*cuts, len(records)], strict=True)]
    for kernel in (reference, compiled):

        def walk_in_chunks(kernel: Any = kernel) -> Any:
            walker = kernel.RecordWalker(count, base_timestamp, **rules)
            for chunk in chunks:
                walker.feed(chunk)
            return walker.finish()

        assert outcome(walk_in_chunks) == expected


@given(batches(), st.data())
def test_search_for_timestamp_in_mutated_records_agrees(batch: bytes, data: st.DataObject) -> None:
    records, header = records_and_header(batch)
    records = data.draw(mutated(st.just(records)) | st.just(records))
    arguments = (
        records,
        data.draw(st.just(header.count) | st.integers(-1, 20)),
        data.draw(st.just(header.base_timestamp) | INT64),
        data.draw(timestamps | INT64),
        data.draw(st.integers(0, 20)),
    )
    assert outcome(compiled.find_timestamp, *arguments) == outcome(reference.find_timestamp, *arguments)


@given(runs(), st.booleans(), st.integers(0, 5), st.integers(0, 100))
def test_scan_of_mutated_run_agrees(run: bytes, verify: bool, limit: int, position: int) -> None:
    expected = outcome(reference.scan_batches, run, position, verify=verify, limit=limit)
    found = outcome(compiled.scan_batches, run, position, verify=verify, limit=limit)
    if isinstance(expected, str):
        assert found == expected
    else:
        assert found[:3] == expected[:3]
        assert (found.problem is None) == (expected.problem is None)


@given(batches(), st.data(), st.booleans(), st.booleans())
def test_inspection_of_mutated_batch_agrees(
    batch: bytes, data: st.DataObject, is_checksum_renewed: bool, require_keys: bool
) -> None:
    changed = bytearray(data.draw(mutated(st.just(batch))))
    if is_checksum_renewed and len(changed) >= HEADER_BYTES:  # so that it is the records that are looked at
        changed[17:21] = compute_crc(changed).to_bytes(4, "big")
    expected = outcome(reference.inspect_batch, changed, require_keys)
    assert outcome(compiled.inspect_batch, changed, require_keys) == expected


@given(batches(), st.data(), st.booleans(), st.booleans(), st.integers(0, 5_000), st.integers(0, 2**63 - 1))
def test_admission_of_mutated_batch_agrees(
    batch: bytes, data: st.DataObject, is_checksum_renewed: bool, require_keys: bool, now_ms: int, span_ms: int
) -> None:
    changed = bytearray(data.draw(st.just(batch) | mutated(st.just(batch))))
    if is_checksum_renewed and len(changed) >= HEADER_BYTES:
        changed[17:21] = compute_crc(changed).to_bytes(4, "big")
    ours, theirs = bytearray(changed), bytearray(changed)
    limits = (require_keys, now_ms, span_ms, span_ms)
    expected = reference.admit_batch(ours, 77, 5, *limits)
    assert compiled.admit_batch(theirs, 77, 5, *limits) == expected
    assert theirs == ours
    if expected is None:
        assert ours == changed


@given(runs(), INT64)
def test_seek_in_mutated_run_agrees(run: bytes, target: int) -> None:
    assert outcome(compiled.seek_offset, run, target) == outcome(reference.seek_offset, run, target)


@given(st.binary(max_size=300), st.sampled_from([(12, 0, True), (12, 8, False), (8, 0, False), (8, 4, False)]), INT64)
def test_floor_in_any_bytes_agrees(entries: bytes, column: tuple[int, int, bool], target: int) -> None:
    assert compiled.floor_entry(entries, *column, target) == reference.floor_entry(entries, *column, target)


@given(
    runs(),
    st.integers(0, 2**62) | st.just(0),
    st.integers(0, 2**62) | st.just(2**63 - 1),
    st.lists(st.tuples(st.integers(-1, 2), INT64, INT64), max_size=4),
    st.booleans(),
    st.sampled_from([1, 300, 2**31 - 1]),
)
def test_columns_of_mutated_run_agree(
    run: bytes,
    first_offset: int,
    end_offset: int,
    aborted: list[tuple[int, int, int]],
    with_headers: bool,
    column_bytes_max: int,
) -> None:
    results = []
    for kernel in (reference, compiled):
        decoder = kernel.ColumnDecoder(
            first_offset, end_offset, with_headers, verify=first_offset % 2 == 0, column_bytes_max=column_bytes_max
        )
        consumed = [outcome(decoder.append_run, run, aborted)]
        if isinstance(consumed[0], int):
            consumed.append(outcome(decoder.append_run, run[consumed[0] :], aborted))
        rows: list[Row] = rows_of(decoder.finish())
        results.append((consumed, rows))
    assert results[1] == results[0]


@given(batches(), st.data())
def test_columns_of_mutated_records_agree(batch: bytes, data: st.DataObject) -> None:
    records, header = records_and_header(batch)
    records = data.draw(mutated(st.just(records)))
    header = header._replace(
        count=data.draw(st.just(header.count) | st.integers(-1, 20)),
        base_offset=data.draw(st.just(header.base_offset) | INT64),
        last_offset_delta=data.draw(st.just(header.last_offset_delta) | st.integers(-(2**31), 2**31 - 1)),
    )
    good, good_header = records_and_header(data.draw(batches()))
    results = []
    for kernel in (reference, compiled):
        decoder = kernel.ColumnDecoder()
        outcomes = [
            outcome(decoder.append_records, good, good_header),
            outcome(decoder.append_records, records, header),
            outcome(decoder.append_records, good, good_header),
        ]
        results.append((outcomes, rows_of(decoder.finish())))
    assert results[1] == results[0]


@given(batches(), st.data())
def test_encoding_of_mutated_columns_agrees(batch: bytes, data: st.DataObject) -> None:
    decoder = compiled.ColumnDecoder()
    decoder.append_run(batch)
    columns = decoder.finish()
    for field in fields(Columns):
        if data.draw(st.integers(0, 9)) == 0 and field.name != "count":
            content = getattr(columns, field.name)
            columns = replace(columns, **{field.name: data.draw(mutated(st.just(bytes(content or b""))))})
    start, stop = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 12) | st.just(columns.count))
    base_timestamp, max_bytes = data.draw(INT64), data.draw(st.integers(-1, 2000))
    expected = outcome(reference.encode_records, columns, start, stop, base_timestamp, max_bytes)
    assert outcome(compiled.encode_records, columns, start, stop, base_timestamp, max_bytes) == expected


@given(st.lists(batches(), min_size=1, max_size=3), st.data())
def test_compaction_of_mutated_records_agrees(written: list[bytes], data: st.DataObject) -> None:
    sections = []
    for batch in written:
        records, header = records_and_header(batch)
        if data.draw(st.integers(0, 2)) == 0:
            records = data.draw(mutated(st.just(records)))
        sections.append((records, header.count, data.draw(st.just(header.base_offset) | INT64)))
    base_timestamp = data.draw(INT64)
    new_base_timestamp = data.draw(st.just(base_timestamp) | INT64)
    drop_tombstones = data.draw(st.booleans())
    memory_bytes = data.draw(st.sampled_from([48, 96, 10_000]))
    results = []
    for kernel in (reference, compiled):
        newest = kernel.KeyOffsets(memory_bytes, SECRET)
        seen: list[Any] = [newest.capacity]
        for section in sections:
            seen += [outcome(newest.add_records, *section), len(newest), newest.last_offset]
        seen += [newest.latest(key) for key in (b"", b"a", b"b", b"long key" * 3)]
        for section in sections:
            seen.append(
                outcome(
                    kernel.filter_records,
                    *section,
                    base_timestamp,
                    newest,
                    drop_tombstones=drop_tombstones,
                    new_base_timestamp=new_base_timestamp,
                )
            )
        results.append(seen)
    assert results[1] == results[0]


@given(st.binary(max_size=20_000), st.integers(0, 2**32 - 1), st.integers(0, 40))
def test_checksum_agrees_however_it_is_computed(data: bytes, initial: int, skip: int) -> None:
    view = memoryview(data * 3)[skip:]
    expected = reference.crc32c(view, initial)
    assert compiled.crc32c(view, initial) == compiled.crc32c(view, initial, portable=True) == expected


@given(st.lists(st.sampled_from(Codec).flatmap(lambda codec: batches(codec=codec)), max_size=3))
def test_columns_of_any_run_hold_what_the_reader_reads(written: list[bytes]) -> None:
    decoder = chosen.ColumnDecoder()
    run = b"".join(written)
    assert append_run(decoder, run) == len(run)
    expected: list[Record] = [record for batch in written for record in read_records(batch)]
    columns = decoder.finish()
    assert [row[:4] for row in rows_of(columns)] == [
        (record.offset, record.timestamp, record.key, record.value) for record in expected
    ]
    assert [row[4] for row in rows_of(columns)] == [
        [(header.key.encode(), header.value) for header in record.headers] for record in expected
    ]
    again = [record for batch in encode_batches(columns, max_batch_bytes=300) for record in read_records(batch)]
    assert [record[:4] for record in again] == [record[:4] for record in expected]
