"""Which protocol (in Kafka's clients: assignor) a group uses, and which topics its members read.

Pure. Members list the protocols that they can do, the preferred one first. A group can only use one that all of them
know; of these each member votes for the first on its list, and most votes win. `Ballots` counts lists and names as
members come and go, so that a join asks two dictionaries instead of all members: clients of one version all send the
same list.

The metadata that goes with a protocol is the client's own. Only for the type "consumer" does the coordinator look into
it, for the topics: offsets of a topic that somebody reads are not expired or deleted.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from barnabas.wire.primitives import UNREADABLE, read_count, read_string

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""What a member can do, preferred first, each with its metadata."""

_VERSION_BYTES: Final = 2
_TOPICS_MAX: Final = 10_000

_Key = TypeVar("_Key")


class Ballots:
    """The protocols that the members of one group know."""

    __slots__ = ("_lists", "_member_count", "_supporters")

    def __init__(self) -> None:
        # Not Counters: most groups have no members, and plain empty dictionaries are nothing to the garbage collector.
        self._lists: dict[tuple[str, ...], int] = {}
        self._supporters: dict[str, int] = {}
        self._member_count = 0

    def add(self, protocols: Protocols) -> None:
        self._change(protocols, 1)

    def remove(self, protocols: Protocols) -> None:
        self._change(protocols, -1)

    def _change(self, protocols: Protocols, by: int) -> None:
        names = tuple(dict.fromkeys(name for name, _ in protocols))
        self._member_count += by
        _count(self._lists, names, by)
        for name in names:
            _count(self._supporters, name, by)

    def know_one_of(self, names: Iterable[str]) -> bool:
        """Whether every member knows one and the same of these."""
        return any(self._supporters.get(name, 0) == self._member_count for name in names)

    def elected(self) -> str:
        """The protocol with most votes; of equal ones, the one that got its first vote earlier."""
        votes: Counter[str] = Counter()
        for names, count in self._lists.items():
            choice = next(name for name in names if self._supporters[name] == self._member_count)
            votes[choice] += count
        return votes.most_common(1)[0][0]

    @property
    def member_count(self) -> int:
        return self._member_count


def _count(counts: dict[_Key, int], key: _Key, by: int) -> None:
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics in consumers' metadata; None when one of them cannot be read, so that nothing is known.

    All versions begin with the topics, so that version 0 of the format is enough here.
    """
    topics: set[str] = set()
    try:
        for subscription in set(subscriptions):  # members of one application send the same bytes
            topics.update(_topics_of(subscription))
    except UNREADABLE:
        return None
    return frozenset(topics)


def _topics_of(subscription: bytes) -> Sequence[str]:
    if len(subscription) < _VERSION_BYTES or subscription[0] & 0x80:
        raise ValueError("no version, or a negative one")
    count, position = read_count(subscription, _VERSION_BYTES, False)
    if count > _TOPICS_MAX:
        raise ValueError(f"{count} topics are too many to look at")
    topics = []
    for _ in range(count):
        topic, position = read_string(subscription, position, False)
        topics.append(topic)
    return topics
