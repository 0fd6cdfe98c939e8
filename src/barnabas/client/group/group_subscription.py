"""Which topics a member of a group wants: by name, or all that match a pattern; and whether they changed.

The member that leads the group also watches how many partitions each topic of the group has, because it is the one that
must see to it that new ones are read.
"""

import re
from collections.abc import Collection, Mapping

from barnabas.client.cluster import Cluster


class TopicSubscription:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._topics: frozenset[str] = frozenset()
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
        if self._pattern is not None:
            pattern = self._pattern
            view = await self._cluster.retry("the topics could not be listed", lambda: self._cluster.refresh(None))
            self._topics = frozenset(
                topic.name for topic in view.topics.values() if not topic.is_internal and pattern.fullmatch(topic.name)
            )
        return self._topics

    async def has_other_topics(self) -> bool:
        """Whether topics that match the pattern were created or deleted since the last lookup."""
        before = self._topics
        return self._pattern is not None and await self.topics() != before

    async def resized_topic(self) -> str | None:
        """A topic whose partition count differs from what the group knows; reported once."""
        if not self._counts:
            return None
        view = await self._cluster.refresh(self._counts)
        for name, count in self._counts.items():
            if (len(view.topics[name].partitions) if name in view.topics else 0) != count:
                self._counts = {}
                return name
        return None
