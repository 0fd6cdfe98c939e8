"""Records to bytes, for `barnabas consume`. Pure.

Without a format a record is its value and a line feed, byte for byte. A format has fields in braces and C's escapes:

```
{partition}:{offset}\\t{key}\\t{value}
```

Keys and values are put in as they are, whatever their bytes; for null there is a text that the caller chooses. JSON
tells null, text and other bytes apart, as `barnabas log dump --json` does.
"""

import re
import string
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.base.errors import BarnabasError
from barnabas.cli.log.dump_text import json_of, time_text

if TYPE_CHECKING:
    from barnabas.client.reading.fetched import ConsumedRecord

Render: TypeAlias = "Callable[[ConsumedRecord], bytes]"

_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


class InvalidFormat(BarnabasError):  # noqa: N818 - a fact about the text
    """A format with a field that does not exist, or a brace that is not closed."""


def value_renderer(null: bytes) -> Render:
    """Renders a record as its value; `null` stands for a tombstone."""
    return lambda record: (null if record.value is None else record.value) + b"\n"


def render_json(record: "ConsumedRecord") -> bytes:
    line = {
        "topic": record.partition.topic,
        "partition": record.partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": record.key,
        "value": record.value,
        "headers": [(name.encode("utf-8", "surrogateescape"), content) for name, content in record.headers],
    }
    return json_of(line).encode() + b"\n"


def _fields(null: bytes) -> dict[str, Render]:
    return {
        "topic": lambda record: record.partition.topic.encode(),
        "partition": lambda record: b"%d" % record.partition.partition,
        "offset": lambda record: b"%d" % record.offset,
        "timestamp": lambda record: b"%d" % record.timestamp_ms,
        "time": lambda record: time_text(record.timestamp_ms).encode(),
        "key": lambda record: null if record.key is None else record.key,
        "value": lambda record: null if record.value is None else record.value,
        "headers": lambda record: b",".join(
            name.encode("utf-8", "surrogateescape") + b"=" + (null if content is None else content)
            for name, content in record.headers
        ),
    }


def compile_format(text: str, null: bytes) -> Render:
    """A function that renders records so, each on a line of its own."""
    fields = _fields(null)
    parts: list[tuple[bytes, Render | None]] = []
    try:
        parsed = list(string.Formatter().parse(_ESCAPE.sub(_unescape, text)))
    except ValueError as error:
        raise InvalidFormat(f"--format: {error}; write {{{{ for a brace") from error
    for literal, field, specification, conversion in parsed:
        if field is not None and (field not in fields or specification or conversion):
            raise InvalidFormat(f"--format: unknown field {{{field}}}; known fields are {', '.join(fields)}")
        parts.append((literal.encode(), None if field is None else fields[field]))

    def render(record: "ConsumedRecord") -> bytes:
        rendered = bytearray()
        for literal, field_of in parts:
            rendered += literal
            if field_of is not None:
                rendered += field_of(record)
        return bytes(rendered) + b"\n"

    return render


def _unescape(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[1:], 16)) if len(code) == 3 else _ESCAPED.get(code, escape[0])
