"""Which partition a record goes to. Pure, but for the random source that it is given.

A record with a key goes where Kafka's Java clients send it (murmur2 of the key), so that clients of any language agree.
Records without a key stick to one partition while its batch is open, then go on to another: full batches, and still
every partition gets its share.
"""

import random
from collections.abc import Sequence

from barnabas.records.kernel import murmur2

__all__ = ["StickyChoice", "murmur2", "partition_for_key"]


def partition_for_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyChoice:
    """The partition of each topic that records without a key go to now."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._current: dict[str, int] = {}

    def current(self, topic: str) -> int | None:
        return self._current.get(topic)

    def move_on(self, topic: str, available: Sequence[int]) -> int:
        """Another partition than the current one, if there is another."""
        others = [index for index in available if index != self._current.get(topic)]
        chosen = self._current[topic] = self._source.choice(others or available)
        return chosen
