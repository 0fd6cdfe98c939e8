"""Loading a shard from the log: of a million commits only the last of each partition counts.

Pure. `Replay.add_all` takes records in the log's order and keeps the last value of each key, which is what compaction
would do. Nearly all records are offsets; those of a group and topic are put together at once, as the state has them,
and stay bytes. `build_into` then checks and decodes what is left, in slices, so that the event loop is never held long.

The outcome equals `LoggedGroups.replay` of every record, because a record's meaning does not depend on the ones before
it. That is as long as all of them can be read: at one that cannot, `CorruptGroupRecord` ends it, and the log must be
replayed record by record, so that what the bad one has replaced counts. Two types of key mean an offset: Kafka wrote
the older type before 0.9 and only the newer one since, so the older ones, which are among `_others`, go first.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from barnabas.base.ids import Offset
from barnabas.groups.logged import LoggedGroups
from barnabas.groups.records import check_offsets, encode_offset_key, is_offset_prefix, names_in, split_offset_keys
from barnabas.wire.primitives import INT32

_OFFSETS_CHECKED_TOGETHER: Final = 1000
_OFFSETS_LIKE_ONE_RECORD: Final = 16
_BYTES_LIKE_ONE_RECORD: Final = 64
"""How many of these take about as long as decoding one small record."""


class Replay:
    __slots__ = ("_left", "_offsets", "_others")

    def __init__(self) -> None:
        self._offsets: dict[bytes, dict[int, bytes | None]] = {}
        """By what the keys of a group's and topic's partitions have in common, and by partition."""
        self._others: dict[bytes, bytes | None] = {}
        self._left: Iterator[int] | None = None

    def add_all(self, keys: Sequence[bytes], values: Sequence[bytes | None], offsets: Sequence[Offset] = ()) -> None:
        """Takes these records, in the log's order."""
        if not keys:
            return
        prefixes, numbers = split_offset_keys(keys)
        last_prefix = None
        partitions: dict[int, bytes | None] = {}
        for prefix, number, value in zip(prefixes, numbers, values, strict=True):
            if prefix != last_prefix:
                if not is_offset_prefix(prefix):
                    self._others[prefix + INT32.pack(number)] = value
                    continue
                last_prefix = prefix
                partitions = self._offsets.setdefault(prefix, {})
            partitions[number] = value

    def build_into(self, groups: LoggedGroups, limit: int) -> bool:
        """Does about as much as decoding `limit` small records; returns whether all is done. Add nothing after it."""
        if self._left is None:
            self._left = self._build(groups)
        done = 0
        for amount in self._left:
            done += amount
            if done >= limit:
                return False
        return True

    def _build(self, groups: LoggedGroups) -> Iterator[int]:
        for key, value in self._others.items():
            groups.replay(key, value)
            yield 1 if value is None else 1 + len(value) // _BYTES_LIKE_ONE_RECORD
        for prefix, partitions in self._offsets.items():
            group_id, topic = names_in(prefix)
            if None in partitions.values():
                for partition in [partition for partition, value in partitions.items() if value is None]:
                    del partitions[partition]
                    groups.replay(encode_offset_key(group_id, topic, partition), None)
            present: dict[int, bytes] = partitions  # type: ignore[assignment] # the others are gone
            values = list(present.values())
            for start in range(0, len(values), _OFFSETS_CHECKED_TOGETHER):
                together = values[start : start + _OFFSETS_CHECKED_TOGETHER]
                check_offsets(together)
                yield 1 + len(together) // _OFFSETS_LIKE_ONE_RECORD
            if present:
                groups.take_offsets(group_id, topic, present)
