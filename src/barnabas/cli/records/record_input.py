"""Lines to records, for `barnabas produce`. Pure.

A line is a value, `KEY<separator>VALUE`, or a JSON object:

```
{"value": "two coffees", "key": "42", "headers": {"trace": "abc"}, "partition": 0, "timestamp": 1700000000000}
```

Text is UTF-8; `{"base64": "..."}` stands for any bytes, and another JSON value for its JSON text. Headers are an
object, or a list of pairs where a name comes twice. What `barnabas consume --json` prints is understood: `topic` and
`offset` are ignored.
"""

import binascii
import json
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from barnabas.base.errors import BarnabasError

_FIELDS: Final = frozenset({"key", "value", "headers", "partition", "timestamp"})
_IGNORED: Final = frozenset({"topic", "offset"})


class InvalidLine(BarnabasError):  # noqa: N818 - a fact about the line
    """A line that is no record; the message says what is wrong with it."""


class InputRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LineFormat:
    is_json: bool = False
    key_separator: bytes | None = None
    key: bytes | None = None
    """Of every record that brings none."""
    headers: Sequence[tuple[str, bytes | None]] = ()
    """Of every record, before its own."""
    null: bytes | None = None
    """What stands for null in a line of text, as key or as value; nothing does when this is None."""

    def parse(self, line: bytes) -> InputRecord:
        record = self._parse_json(line) if self.is_json else self._parse_text(line)
        key = self.key if record.key is None else record.key
        return record._replace(key=key, headers=(*self.headers, *record.headers))

    def _parse_text(self, line: bytes) -> InputRecord:
        if self.key_separator is None:
            return InputRecord(None, self._or_null(line))
        key, separator, value = line.partition(self.key_separator)
        if not separator:
            raise InvalidLine(f"there is no {self.key_separator.decode('utf-8', 'replace')!r} after a key")
        return InputRecord(self._or_null(key), self._or_null(value))

    def _or_null(self, text: bytes) -> bytes | None:
        return None if text == self.null else text

    def _parse_json(self, line: bytes) -> InputRecord:
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise InvalidLine(f"not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise InvalidLine('not a JSON object such as {"value": "..."}')
        unknown = sorted(set(fields) - _FIELDS - _IGNORED)
        if unknown:
            raise InvalidLine(f"unknown field {unknown[0]!r}; known fields are {', '.join(sorted(_FIELDS))}")
        return InputRecord(
            _content("key", fields.get("key")),
            _content("value", fields.get("value")),
            _headers(fields.get("headers") or ()),
            _number("partition", fields.get("partition")),
            _number("timestamp", fields.get("timestamp")),
        )


def _content(name: str, value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and set(value) == {"base64"}:
        try:
            return b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise InvalidLine(f"{name}: not base64: {error}") from error
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list | tuple) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        pairs = [tuple(pair) for pair in value]
    else:
        raise InvalidLine("headers: neither an object nor a list of pairs")
    if not all(isinstance(name, str) for name, _ in pairs):
        raise InvalidLine("headers: a name is not text")
    return tuple((name, _content("headers", content)) for name, content in pairs)


def _number(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise InvalidLine(f"{name}: not a number from 0 on: {value!r}")
    return value
