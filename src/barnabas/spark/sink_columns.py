"""From Spark's rows to what a producer takes: which columns serve, of which types, and the rows of each topic.

| column | type | |
|---|---|---|
| `value` | STRING or BINARY | must be there; null is a tombstone |
| `key` | STRING or BINARY | may be missing or null |
| `topic` | STRING | unless the option `topic` is given, which wins |
| `partition` | INT | may be missing or null: the key decides then |
| `headers` | ARRAY<STRUCT<key: STRING, value: BINARY>> | may be missing or null |

These are the rules of Spark's Kafka connector, and like there any other column is left alone: what was read from a
topic can be written to another as it is. Rows stay Arrow columns throughout; only a row that is refused is looked at
by itself, to say which one it is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from barnabas.base.buffers import Buffer
from barnabas.base.errors import InvalidSetting
from barnabas.base.ids import topic_name_problem
from barnabas.records.arrow import from_arrow
from barnabas.records.results import Columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

USED: Final = ("key", "value", "headers", "topic", "partition")
_RECORD: Final = ("key", "value", "headers")
_HEADER_FIELDS: Final = [("key", "string"), ("value", "binary")]


class RowRefused(ValueError):  # noqa: N818 - named as the fact that it is
    """A row that cannot become a record."""


@dataclass(frozen=True, slots=True)
class TopicRows:
    """Rows for one topic."""

    topic: str
    columns: Columns
    partitions: Buffer | None
    """int32 each, -1 where the key decides; None when it always does."""
    row_numbers: Sequence[int]


def check_schema(schema: "StructType", topic: str | None) -> None:
    """InvalidSetting when the columns of a DataFrame cannot be written."""
    types = {field.name.lower(): field.dataType for field in schema.fields}
    if topic is None and "topic" not in types:
        raise InvalidSetting("no topic: give the option 'topic', or the rows a column 'topic'")
    if "value" not in types:
        raise InvalidSetting("no column 'value': it holds what is written (STRING or BINARY)")
    allowed = {"value": ("string", "binary"), "key": ("string", "binary"), "partition": ("int",)}
    if topic is None:
        allowed["topic"] = ("string",)
    for name, kinds in allowed.items():
        found = types[name].simpleString() if name in types else kinds[0]
        if found.partition(" ")[0] not in kinds:  # a collation follows the name of a string's type
            raise InvalidSetting(f"column '{name}' is {found}, but must be {' or '.join(kinds)}: cast it in the query")
    if "headers" in types and not _is_headers(types["headers"]):
        raise InvalidSetting(
            f"column 'headers' is {types['headers'].simpleString()}, but must be array<struct<key:string,value:binary>>"
        )


def _is_headers(kind: Any) -> bool:
    fields = getattr(getattr(kind, "elementType", None), "fields", ())
    return [(field.name, field.dataType.simpleString()) for field in fields] == _HEADER_FIELDS


def rows_by_topic(
    batch: pa.RecordBatch, topic: str | None, first_row: int, timestamp_ms: int, accepted_topics: set[str]
) -> Iterator[TopicRows]:
    """The rows of each topic, in their order. `accepted_topics` remembers the names that were looked at already."""
    names = {name.lower(): index for index, name in enumerate(batch.schema.names)}
    columns = {name: batch.column(names[name]) for name in USED if name in names}
    partitions = columns.pop("partition", None)
    if partitions is not None:
        partitions = _partitions(partitions, first_row)
    topics = columns.pop("topic", None)
    record_names = [name for name in _RECORD if name in columns]
    records = pa.RecordBatch.from_arrays([columns[name] for name in record_names], names=record_names)
    _check_header_keys(columns.get("headers"), first_row)
    numbers: Sequence[int] = range(first_row, first_row + batch.num_rows)
    if topic is not None:
        yield TopicRows(topic, from_arrow(records, default_timestamp_ms=timestamp_ms), _buffer(partitions), numbers)
        return
    if topics.null_count:
        row = first_row + pc.index(pc.is_null(topics), True).as_py()
        raise RowRefused(f"row {row}: its topic is null; give the option 'topic', or leave such rows out")
    distinct = topics.dictionary_encode()
    for index, name in enumerate(distinct.dictionary.to_pylist()):
        places = pc.indices_nonzero(pc.equal(distinct.indices, index))
        if name not in accepted_topics:
            if problem := topic_name_problem(name):
                raise RowRefused(f"row {first_row + places[0].as_py()}: {problem}")
            accepted_topics.add(name)
        if len(places) == batch.num_rows:
            chosen, chosen_partitions, chosen_numbers = records, partitions, numbers
        else:
            chosen = records.take(places)
            chosen_partitions = None if partitions is None else partitions.take(places)
            chosen_numbers = _Picked(places, first_row)
        yield TopicRows(
            name,
            from_arrow(chosen, default_timestamp_ms=timestamp_ms),
            _buffer(chosen_partitions),
            chosen_numbers,
        )


class _Picked(Sequence[int]):
    """The numbers of rows that were picked out of a batch; looked up only for an error."""

    def __init__(self, places: pa.Array, first_row: int) -> None:
        self._places = places
        self._first_row = first_row

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        return self._first_row + self._places[index].as_py()


def _partitions(column: pa.Array, first_row: int) -> pa.Array:
    is_negative = pc.less(column, 0)
    if pc.any(is_negative).as_py():
        place = pc.index(is_negative, True).as_py()
        raise RowRefused(f"row {first_row + place}: its partition is {column[place].as_py()}, below 0")
    return column.fill_null(-1)


def _buffer(column: pa.Array | None) -> Buffer | None:
    if column is None:
        return None
    return memoryview(column.buffers()[1])[column.offset * 4 : (column.offset + len(column)) * 4]


def _check_header_keys(headers: pa.Array | None, first_row: int) -> None:
    if headers is None:
        return
    entries = headers.flatten()
    is_bad = pc.or_(pc.is_null(entries), pc.is_null(pc.struct_field(entries, "key")))
    if pc.any(is_bad).as_py():
        owner = pc.list_parent_indices(headers)[pc.index(is_bad, True).as_py()].as_py()
        raise RowRefused(f"row {first_row + owner}: it has a header without a key")
