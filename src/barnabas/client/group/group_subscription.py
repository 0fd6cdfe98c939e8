"""Which topics a member of a group wants: by name, or all that match a pattern; and whether they changed.

The member that leads the group also watches how many partitions each topic of the group has, because it is the one that
must see to it that new ones are read.

The caller may subscribe again, and a rebalance may bring new counts, while a lookup waits for a broker. An answer
counts only for the pattern, or the counts, that it was asked for: it never replaces what was chosen meanwhile.
"""

import re
from collections.abc import Collection, Mapping

from barnabas.client.cluster import Cluster


class TopicSubscription:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._topics: frozenset[str] = frozenset()
        """Chosen by name or, with a pattern, found by the last lookup."""
        self._pattern: re.Pattern[str] | None = None
        self._counts: Mapping[str, int] = {}
        """The topics of the group and their sizes, which we watch as its leader."""

    @property
    def is_chosen(self) -> bool:
        return bool(self._topics) or self._pattern is not None

    def choose(self, topics: Collection[str], pattern: str | re.Pattern[str] | None) -> None:
        assert not isinstance(topics, str), "topics are a collection of names"
        assert bool(topics) != (pattern is not None), "either topics or a pattern"
        self._topics = frozenset(topics)
        self._pattern = None if pattern is None else re.compile(pattern)

    def watch(self, counts: Mapping[str, int]) -> None:
        """These are the group's topics and their numbers of partitions; none when another member leads."""
        self._counts = counts

    async def topics(self) -> frozenset[str]:
        """What is subscribed to now: with a pattern, the topics that match it are looked up."""
        while (pattern := self._pattern) is not None:
            found = await self._matching(pattern)
            if self._pattern is pattern:  # otherwise `choose` was called during the lookup
                self._topics = found
                break
        return self._topics

    async def has_other_topics(self) -> bool:
        """Whether topics that match the pattern were created or deleted since the last lookup.

        False when `choose` is called meanwhile: its caller joins the group again anyway.
        """
        pattern = self._pattern
        if pattern is None:
            return False
        found = await self._matching(pattern)
        if self._pattern is not pattern:
            return False
        before, self._topics = self._topics, found
        return found != before

    async def resized_topic(self) -> str | None:
        """A topic whose partition count differs from what the group knows; reported once.

        None when `watch` is called meanwhile: the next call compares with the new counts.
        """
        counts = self._counts
        if not counts:
            return None
        view = await self._cluster.refresh(counts)
        if self._counts is not counts:
            return None
        for name, count in counts.items():
            if (len(view.topics[name].partitions) if name in view.topics else 0) != count:
                self._counts = {}
                return name
        return None

    async def _matching(self, pattern: re.Pattern[str]) -> frozenset[str]:
        view = await self._cluster.retry("the topics could not be listed", lambda: self._cluster.refresh(None))
        return frozenset(
            topic.name for topic in view.topics.values() if not topic.is_internal and pattern.fullmatch(topic.name)
        )
