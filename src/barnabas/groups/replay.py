"""Loading a shard from the log: of a million commits only the last of each partition counts.

Pure. `Replay.add` takes records in the log's order and keeps the last value of each key, which is what compaction would
do, and costs one store into a dictionary. `build_into` then decodes what is left, in slices, so that the event loop is
never held for long. The outcome equals `GroupShardState.replay` of every record, because a record's meaning does not
depend on the ones before it. (Two types of key mean an offset. Kafka wrote the older type before 0.9 and only the newer
one since, so that the order in which keys first appeared is right for them, too.)
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from barnabas.groups.state import GroupShardState


class Replay:
    __slots__ = ("_latest", "_left")

    def __init__(self) -> None:
        self._latest: dict[bytes, bytes | None] = {}
        self._left: Iterator[tuple[bytes, bytes | None]] | None = None

    def add(self, key: bytes, value: bytes | None) -> None:
        self._latest[key] = value

    def add_all(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """The same for many records at once."""
        self._latest.update(rows)

    def __len__(self) -> int:
        """How many different keys there were."""
        return len(self._latest)

    def build_into(self, state: GroupShardState, limit: int) -> bool:
        """Decodes at most this many records; says whether all are done. Nothing is added after the first call."""
        if self._left is None:
            self._left = iter(self._latest.items())
        return state.replay_many(islice(self._left, limit)) < limit
