"""How far a member has come with each of its partitions: handed out, done, committed. Pure.

```
committed ≤ done ≤ handed out                  (unless the caller seeks back)
```

What is *handed out* is *done* when the caller comes back for more. Partitions without a place to begin are *homeless*:
they are assigned, but have none of the three.
"""

from collections.abc import Iterable, Mapping

from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.group.group_offsets import OffsetAndMetadata


class Progress:
    def __init__(self) -> None:
        self._done: dict[TopicPartition, Offset] = {}
        self._handed_out: dict[TopicPartition, Offset] = {}
        self._committed: dict[TopicPartition, Offset] = {}
        self._homeless: set[TopicPartition] = set()

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._done) | self._homeless

    @property
    def homeless(self) -> frozenset[TopicPartition]:
        return frozenset(self._homeless)

    @property
    def positions(self) -> dict[TopicPartition, Offset]:
        """Behind all that was handed out."""
        return {**self._done, **self._handed_out}

    def begin(self, partition: TopicPartition, offset: Offset | None, committed: Offset | None) -> None:
        if offset is None:
            self._homeless.add(partition)
            return
        self._done[partition] = offset
        if committed is not None:
            self._committed[partition] = committed

    def seek(self, partition: TopicPartition, offset: Offset) -> None:
        self._homeless.discard(partition)
        self._done[partition] = offset
        self._handed_out.pop(partition, None)

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            for offsets in (self._done, self._handed_out, self._committed):
                offsets.pop(partition, None)
            self._homeless.discard(partition)

    def hand_out(self, partition: TopicPartition, next_offset: Offset) -> None:
        if partition in self._done:
            self._handed_out[partition] = next_offset

    def finish(self) -> None:
        """The caller is done with all that it has."""
        self._done.update(self._handed_out)
        self._handed_out.clear()

    def uncommitted(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Offset]:
        """What is done and not committed yet, of all partitions or of some."""
        chosen = self._done if partitions is None else partitions
        return {
            one: self._done[one] for one in sorted(chosen) if one in self._done and self._is_new(one, self._done[one])
        }

    def uncommitted_positions(self) -> dict[TopicPartition, Offset]:
        """The same, with all that was handed out."""
        return {one: offset for one, offset in self.positions.items() if self._is_new(one, offset)}

    def note_committed(self, offsets: Mapping[TopicPartition, Offset | OffsetAndMetadata]) -> None:
        """What is committed is done too, or the next automatic commit would take it back."""
        for partition, committed in offsets.items():
            offset = committed.offset if isinstance(committed, OffsetAndMetadata) else committed
            if partition in self._done:
                self._committed[partition] = offset
                self._done[partition] = max(offset, self._done[partition])

    def _is_new(self, partition: TopicPartition, offset: Offset) -> bool:
        return self._committed.get(partition) != offset

    def check_invariants(self) -> None:
        assert self._handed_out.keys() <= self._done.keys()
        assert self._committed.keys() <= self._done.keys()
        assert not self._homeless & self._done.keys()
