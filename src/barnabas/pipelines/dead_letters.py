"""Takes the records that did not parse out of a stream, and writes them to the dead-letter topic with their story.

The parser gives every row a column `_bad`: null, or the record as it came and the reason. `DeadLetters` runs over Arrow
batches in Spark's workers, between the parser and the steps; good rows pass on untouched, so the input is read once. A
dead letter has the key and value of its record, and these headers, as texts:

| header | |
|---|---|
| `barnabas.reason` | why it did not parse |
| `barnabas.pipeline`, `barnabas.source` | who could not parse it |
| `barnabas.topic`, `barnabas.partition`, `barnabas.offset`, `barnabas.timestamp` | where it came from |
| `barnabas.cut` | only where key or value were too large for the topic and were cut: their sizes before |

At least once: a task that is tried again writes its dead letters again. Topic, partition and offset tell doubles.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from barnabas.pipelines.record_sending import OutgoingRecord, send_records

BAD: Final = "_bad"
_CUT: Final = "barnabas.cut"
BAD_TYPE: Final = (
    "struct<reason: string, key: binary, value: binary, topic: string, partition: int, offset: bigint,"
    " timestamp: timestamp>"
)


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """For `DataFrame.mapInArrow`. `fields` are the names of the columns that a value's JSON should have."""

    bootstrap: str
    topic: str
    pipeline: str
    source: str
    fields: tuple[tuple[str, str], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            bad = batch.column(BAD)
            rest = batch.drop_columns([BAD])
            if bad.null_count < len(bad):
                self._send(bad.filter(bad.is_valid()))
                rest = rest.filter(pc.is_null(bad))
            yield rest

    def _send(self, bad: pa.StructArray) -> None:
        letters = [self._letter(record) for record in bad.to_pylist()]
        send_records(self.bootstrap, self.topic, letters, shortened)

    def _letter(self, record: dict[str, Any]) -> OutgoingRecord:
        timestamp = record["timestamp"]
        headers = {
            "reason": explain(record["reason"], record["value"], self.fields),
            "pipeline": self.pipeline,
            "source": self.source,
            "topic": record["topic"],
            "partition": record["partition"],
            "offset": record["offset"],
            "timestamp": "" if timestamp is None else timestamp.isoformat(),
        }
        as_bytes = tuple((f"barnabas.{name}", str(text).encode()) for name, text in headers.items())
        return OutgoingRecord(record["key"], record["value"], as_bytes)


def shortened(letter: OutgoingRecord) -> OutgoingRecord | None:
    """The letter with half of its value or key, whichever is longer, and their sizes in a header; None at the end."""
    key_bytes, value_bytes = len(letter.key or b""), len(letter.value or b"")
    if max(key_bytes, value_bytes) <= 1:
        return None
    headers = letter.headers
    if not any(name == _CUT for name, _ in headers):
        headers = (*headers, (_CUT, f"key {key_bytes} bytes, value {value_bytes} bytes".encode()))
    if value_bytes >= key_bytes:
        return OutgoingRecord(letter.key, (letter.value or b"")[: value_bytes // 2], headers)
    return OutgoingRecord((letter.key or b"")[: key_bytes // 2], letter.value, headers)


def explain(reason: str, value: bytes | None, fields: tuple[tuple[str, str], ...]) -> str:
    """Spark only says that a JSON value is bad; this says what is wrong with it, where that is plain to see."""
    if value is None or not fields:
        return reason
    try:
        parsed = json.loads(value.decode("utf-8"))  # bytes alone would be guessed to be UTF-16 at times
    except UnicodeDecodeError:
        return "the value is not UTF-8 text"
    except json.JSONDecodeError as error:
        return f"the value is not JSON: {error}"
    except RecursionError:
        return reason
    if not isinstance(parsed, dict):
        return "the value is JSON, but not an object"
    for name, kind in fields:
        if name in parsed and not _may_be(parsed[name], kind):
            return f"field '{name}' cannot be read as {kind}: {json.dumps(parsed[name])[:200]}"
    return reason


_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")


def _may_be(value: object, kind: str) -> bool:
    """Whether a JSON value can be of a type of Spark; True where only Spark can tell."""
    if value is None or kind == "string":
        return True
    if kind in _WHOLE:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind in ("double", "float") or kind.startswith("decimal"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind.startswith("timestamp") or kind == "date":
        # A text that looks like a time is left to Spark; the one at fault is found among the rest.
        return isinstance(value, int | float) or (isinstance(value, str) and value[:4].isdecimal())
    if kind.startswith("array"):
        return isinstance(value, list)
    return not kind.startswith(("struct", "map")) or isinstance(value, dict)
