"""Writes the lines of a dump: for people, or as JSON. Whatever the bytes are, a line stays one line of clean text.

Keys, values and headers are shown as quoted text when they are UTF-8, else in hexadecimal (JSON: base64).
"""

import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from barnabas.base.ids import NO_EPOCH, NO_PRODUCER, NO_TIMESTAMP, TimestampMs
from barnabas.cli.log.dump import Line

_START: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES: Final = frozenset({"timestamp", "max_timestamp", "delete_horizon", "commit_timestamp", "expire_timestamp"})


def text_of(line: Line) -> str:
    """One line for people."""
    match line["type"]:
        case "batch":
            return _batch_text(line)
        case "record":
            return _record_text(line)
        case _:
            return " ".join(f"{name}={_plain(name, value)}" for name, value in line.items() if name != "type")


def json_of(line: Line) -> str:
    """One JSON object, without a line feed."""
    return json.dumps({name: _json_value(value) for name, value in line.items()}, ensure_ascii=False)


def time_text(timestamp: TimestampMs) -> str:
    """ISO 8601 with milliseconds; a number where a calendar has no such day."""
    if timestamp == NO_TIMESTAMP:
        return "none"
    try:
        return (_START + timedelta(milliseconds=timestamp)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(timestamp)


def bytes_text(content: bytes | None) -> str:
    """Quoted text, or `0x` and hexadecimal digits when it is not UTF-8, or `null`."""
    if content is None:
        return "null"
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{content.hex()}"
    # Characters that would move the cursor or hide text are escaped; so is everything else beyond ASCII beside them.
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _batch_text(line: Line) -> str:
    parts = [
        f"batch {line['base_offset']}..{line['last_offset']}",
        f"position={line['position']}",
        f"bytes={line['size_bytes']}",
        f"records={line['records']}",
        f"codec={line['codec']}",
        f"time={time_text(line['max_timestamp'])}",
    ]
    if line["leader_epoch"] != NO_EPOCH:
        parts.append(f"epoch={line['leader_epoch']}")
    if line["producer_id"] != NO_PRODUCER:
        parts.append(f"producer={line['producer_id']}/{line['producer_epoch']}")
        if line["base_sequence"] >= 0:
            parts.append(f"sequence={line['base_sequence']}..{line['last_sequence']}")
    parts += [flag.replace("_", "-") for flag in ("log_append_time", "transactional", "control") if line[flag]]
    if "delete_horizon" in line:
        parts.append(f"delete-horizon={time_text(line['delete_horizon'])}")
    if "marker" in line:
        parts.append(f"{line['marker']} coordinator-epoch={line['coordinator_epoch']}")
    return " ".join(parts)


def _record_text(line: Line) -> str:
    parts = [f"  record {line['offset']}", f"time={time_text(line['timestamp'])}"]
    if "decoded" in line:
        parts += _decoded_texts(line["decoded"])
    else:
        parts += [f"key={bytes_text(line['key'])}", f"value={bytes_text(line['value'])}"]
    if line["headers"]:
        shown = ", ".join(f"{bytes_text(key)}: {bytes_text(value)}" for key, value in line["headers"])
        parts.append(f"headers={{{shown}}}")
    return " ".join(parts)


def _decoded_texts(fields: dict[str, Any]) -> list[str]:
    """The kind of the record, then its fields; texts are quoted, as they may hold anything."""
    return [fields["kind"], *(f"{name}={_decoded(name, value)}" for name, value in fields.items() if name != "kind")]


def _decoded(name: str, value: Any) -> str:
    if isinstance(value, str):
        return bytes_text(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, list):
        return f"[{', '.join(_decoded(name, member) for member in value)}]"
    if isinstance(value, dict):
        return f"{{{' '.join(f'{key}={_decoded(key, member)}' for key, member in value.items())}}}"
    return str(value).lower() if isinstance(value, bool) else _plain(name, value)


def _plain(name: str, value: Any) -> str:
    if value is None:
        return "none"
    return time_text(value) if name in _TIMES else str(value)


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode("ascii")}
    if isinstance(value, list | tuple):
        return [_json_value(member) for member in value]
    if isinstance(value, dict):
        return {name: _json_value(member) for name, member in value.items()}
    return value
