"""What a test writes where the broker wants texts and bytes: settings as Python values, records with their parts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from barnabas.base.ids import TimestampMs
from barnabas.records.builder import BatchBuilder
from barnabas.testing.records import StoredRecord

Setting: TypeAlias = str | int | float | bool
Headers: TypeAlias = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]


def setting_texts(settings: Mapping[str, Setting]) -> dict[str, str]:
    """The same settings as Kafka's files spell them."""
    return {name: _setting_text(name, value) for name, value in settings.items()}


def _setting_text(name: str, value: Setting) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int | str):
        return str(value)
    raise TypeError(f"the setting {name} must be a string, a number or a boolean, not {type(value).__name__}")


@dataclass(frozen=True, slots=True)
class Record:
    """A record for `Broker.append`; without a timestamp it gets the time of the broker's clock."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: TimestampMs | None = None


def build_batch(
    records: Iterable[bytes | Record | StoredRecord | None], key: bytes | None, timestamp_ms: TimestampMs
) -> bytes:
    """One batch; `key` and `timestamp_ms` are for records that have none of their own."""
    builder = BatchBuilder()
    for one in records:
        record = one if isinstance(one, Record | StoredRecord) else Record(one)
        headers = record.headers.items() if isinstance(record.headers, Mapping) else record.headers
        builder.append(
            timestamp_ms if record.timestamp_ms is None else record.timestamp_ms,
            _checked("key", key if record.key is None else record.key),
            _checked("value", record.value),
            [(name, _checked(f"value of the header {name}", value)) for name, value in headers],
        )
    if not builder.count:
        raise ValueError("there are no records to append")
    return bytes(builder.build())


def _checked(what: str, data: bytes | None) -> bytes | None:
    if data is None or isinstance(data, bytes | bytearray | memoryview):
        return data
    raise TypeError(f"the {what} of a record must be bytes or None, not {type(data).__name__}")
