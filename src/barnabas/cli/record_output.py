"""Records to bytes, for `barnabas consume`. Pure.

Without a format a record is its value and a line feed, byte for byte. A format has fields in braces and C's escapes:

```
{partition}:{offset}\\t{key}\\t{value}
```

Keys and values are put in as they are, whatever their bytes; null leaves nothing. JSON tells null, text and other bytes
apart, as `barnabas log dump --json` does.
"""

import re
import string
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.base.errors import BarnabasError
from barnabas.cli.dump_text import json_of, time_text

if TYPE_CHECKING:
    from barnabas.client.fetched import ConsumedRecord

Render: TypeAlias = "Callable[[ConsumedRecord], bytes]"

_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


class InvalidFormat(BarnabasError):  # noqa: N818 - a fact about the text
    """A format with a field that does not exist, or a brace that is not closed."""


def render_value(record: "ConsumedRecord") -> bytes:
    return (record.value or b"") + b"\n"


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


def _headers_bytes(record: "ConsumedRecord") -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (content or b"") for name, content in record.headers
    )


_FIELDS: "Final[dict[str, Render]]" = {
    "topic": lambda record: record.partition.topic.encode(),
    "partition": lambda record: b"%d" % record.partition.partition,
    "offset": lambda record: b"%d" % record.offset,
    "timestamp": lambda record: b"%d" % record.timestamp_ms,
    "time": lambda record: time_text(record.timestamp_ms).encode(),
    "key": lambda record: record.key or b"",
    "value": lambda record: record.value or b"",
    "headers": _headers_bytes,
}


def compile_format(text: str) -> Render:
    """A function that renders records so, each on a line of its own."""
    parts: list[tuple[bytes, Render | None]] = []
    try:
        parsed = list(string.Formatter().parse(_ESCAPE.sub(_unescape, text)))
    except ValueError as error:
        raise InvalidFormat(f"--format: {error}; write {{{{ for a brace") from error
    for literal, field, specification, conversion in parsed:
        if field is not None and (field not in _FIELDS or specification or conversion):
            raise InvalidFormat(f"--format: no field {{{field}}}; there are {', '.join(_FIELDS)}")
        parts.append((literal.encode(), None if field is None else _FIELDS[field]))

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
