"""Collects records as columns, which the kernel then encodes as a batch in one go.

Appending to columns costs a fraction of encoding a record in Python. The size is counted as the largest that the
records can have on the wire, so a batch is never larger than it was counted.
"""

from array import array
from collections.abc import Iterable
from typing import Final

from barnabas.records.columns import RecordsSection, encode_sections
from barnabas.records.results import Columns

RECORD_OVERHEAD_BYTES_MAX: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
"""Lengths, attributes and deltas, each at its longest."""
HEADER_OVERHEAD_BYTES_MAX: Final = 5 + 5


class _Binary:
    """A growing column of byte strings."""

    __slots__ = ("data", "nulls", "offsets")

    def __init__(self) -> None:
        self.offsets = array("i", [0])
        self.data = bytearray()
        self.nulls: list[int] = []

    def append(self, content: bytes | None) -> None:
        if content is None:
            self.nulls.append(len(self.offsets) - 1)
        else:
            self.data += content
        self.offsets.append(len(self.data))

    def validity(self) -> bytearray | None:
        if not self.nulls:
            return None
        bitmap = bytearray(b"\xff") * ((len(self.offsets) + 6) // 8)
        for row in self.nulls:
            bitmap[row >> 3] &= ~(1 << (row & 7))
        return bitmap


def record_bytes_max(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> int:
    """What a record can take in a batch at most."""
    size = RECORD_OVERHEAD_BYTES_MAX + len(key or b"") + len(value or b"")
    for name, content in headers:
        # A character has at most four bytes in UTF-8.
        size += HEADER_OVERHEAD_BYTES_MAX + 4 * len(name) + len(content or b"")
    return size


class ColumnBuilder:
    __slots__ = ("_header_keys", "_header_lists", "_header_values", "_keys", "_timestamps", "_values", "count")

    def __init__(self) -> None:
        self.count = 0
        self._timestamps = array("q")
        self._keys = _Binary()
        self._values = _Binary()
        self._header_lists = array("i", [0])
        self._header_keys = _Binary()
        self._header_values = _Binary()

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> int:
        """Returns the row of the record."""
        row = self.count
        self._timestamps.append(timestamp_ms)
        self._keys.append(key)
        self._values.append(value)
        for name, content in headers:
            self._header_keys.append(name.encode("utf-8", "surrogateescape"))
            self._header_values.append(content)
        self._header_lists.append(len(self._header_keys.offsets) - 1)
        self.count = row + 1
        return row

    def timestamp(self, row: int) -> int:
        return self._timestamps[row]

    def forget_contents(self) -> None:
        """Frees everything but the timestamps."""
        self._keys = self._values = self._header_keys = self._header_values = _Binary()

    def section(self) -> RecordsSection:
        """The records, encoded."""
        (section,) = encode_sections(self.finish(), max_batch_bytes=2**31 - 1)
        return section

    def finish(self) -> Columns:
        """The columns, sharing the memory of the builder, which must not be appended to any more."""
        return Columns(
            count=self.count,
            offsets=b"",
            timestamps=memoryview(self._timestamps).cast("B"),
            key_offsets=memoryview(self._keys.offsets).cast("B"),
            key_data=self._keys.data,
            key_validity=self._keys.validity(),
            value_offsets=memoryview(self._values.offsets).cast("B"),
            value_data=self._values.data,
            value_validity=self._values.validity(),
            header_list_offsets=memoryview(self._header_lists).cast("B"),
            header_key_offsets=memoryview(self._header_keys.offsets).cast("B"),
            header_key_data=self._header_keys.data,
            header_value_offsets=memoryview(self._header_values.offsets).cast("B"),
            header_value_data=self._header_values.data,
            header_value_validity=self._header_values.validity(),
        )
