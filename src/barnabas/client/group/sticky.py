"""Shares partitions out so that everybody has as many as possible alike, and keeps as much as possible. Pure.

1. **Claims.** Each member says what it had and in which generation. The newest generation wins; when two members of
   the same one claim a partition, something went wrong, and it is free.
2. **All subscribe to the same** (nearly always): everybody may have P // M partitions, and P % M members one more.
   Members keep of their claims what fits; the rest goes to those who have too few. This moves as little as is possible.
3. **Subscriptions differ**: free partitions go to the least loaded member that may have them. Then, as long as a chain
   of members leads from one to another with at least two partitions less, each hands one on to the next. When there is
   no such chain any more, no distribution is more equal.

Everything is done in the order of the members that are given and of the partitions, so the result is always the same.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from barnabas.base.ids import TopicPartition


class Claim(NamedTuple):
    owned: Sequence[TopicPartition]
    generation: int


def assign_sticky(
    counts: Mapping[str, int], topics: Mapping[str, frozenset[str]], claims: Mapping[str, Claim]
) -> dict[str, list[TopicPartition]]:
    """By member id. `counts` has the partitions of each topic that exists, `topics` what each member subscribes to."""
    wanted = sorted(topic for topic in frozenset().union(*topics.values()) if counts.get(topic))
    partitions = [TopicPartition(topic, index) for topic in wanted for index in range(counts[topic])]
    kept = _valid_claims(set(partitions), topics, claims)
    if len({subscribed & set(wanted) for subscribed in topics.values()}) <= 1:
        assigned = _assign_equally(partitions, kept)
    else:
        assigned = _Balancing(partitions, topics, kept).run()
    return {member_id: sorted(owned) for member_id, owned in assigned.items()}


def _valid_claims(
    existing: set[TopicPartition], topics: Mapping[str, frozenset[str]], claims: Mapping[str, Claim]
) -> dict[str, list[TopicPartition]]:
    """What each member may keep, in order."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, claim in claims.items():
        for partition in dict.fromkeys(claim.owned):
            generation, _ = best.get(partition, (None, None))
            if generation is None or claim.generation > generation:
                best[partition] = (claim.generation, member_id)
            elif claim.generation == generation:
                best[partition] = (generation, None)
    kept: dict[str, list[TopicPartition]] = {member_id: [] for member_id in topics}
    for partition, (_, owner) in sorted(best.items(), key=lambda item: item[0]):
        if owner is not None and partition in existing and partition.topic in topics[owner]:
            kept[owner].append(partition)
    return kept


def _assign_equally(
    partitions: Sequence[TopicPartition], kept: Mapping[str, list[TopicPartition]]
) -> dict[str, list[TopicPartition]]:
    if not kept:
        return {}
    size, larger = divmod(len(partitions), len(kept))
    assigned: dict[str, list[TopicPartition]] = {}
    for member_id, owned in kept.items():
        may_have = size
        if len(owned) > size and larger:
            may_have += 1
            larger -= 1
        assigned[member_id] = owned[:may_have]
    taken = {partition for owned in assigned.values() for partition in owned}
    free = deque(partition for partition in partitions if partition not in taken)
    # One by one, so that neighbours of a topic go to different members.
    hungry = deque(member_id for member_id, owned in assigned.items() if len(owned) < size)
    while hungry:
        member_id = hungry.popleft()
        assigned[member_id].append(free.popleft())
        if len(assigned[member_id]) < size:
            hungry.append(member_id)
    for owned in assigned.values():
        if free and len(owned) == size:
            owned.append(free.popleft())
    assert not free, "the shares add up to all partitions"
    return assigned


class _Balancing:
    """The members' partitions by topic: within a topic they are alike, so chains of members are found by topic."""

    def __init__(
        self,
        partitions: Sequence[TopicPartition],
        topics: Mapping[str, frozenset[str]],
        kept: Mapping[str, list[TopicPartition]],
    ) -> None:
        self._readers: dict[str, list[str]] = {}
        for member_id, subscribed in topics.items():
            for topic in subscribed:
                self._readers.setdefault(topic, []).append(member_id)
        self._had = {partition: member_id for member_id, owned in kept.items() for partition in owned}
        self._owned: dict[str, dict[str, list[TopicPartition]]] = {member_id: {} for member_id in topics}
        self._loads = dict.fromkeys(topics, 0)
        for partition in partitions:
            if partition in self._had:
                self._give(self._had[partition], partition)
        free = [partition for partition in partitions if partition not in self._had]
        for partition in sorted(free, key=lambda partition: (len(self._readers[partition.topic]), partition)):
            self._give(min(self._readers[partition.topic], key=self._loads.__getitem__), partition)

    def run(self) -> dict[str, list[TopicPartition]]:
        while chain := self._find_chain():
            for (giver, topic), (taker, _) in pairwise(chain):
                self._move(giver, taker, topic)
        return {
            member_id: [partition for owned in by_topic.values() for partition in owned]
            for member_id, by_topic in self._owned.items()
        }

    def _give(self, member_id: str, partition: TopicPartition) -> None:
        self._owned[member_id].setdefault(partition.topic, []).append(partition)
        self._loads[member_id] += 1

    def _move(self, giver: str, taker: str, topic: str) -> None:
        """One partition of the topic: best one that the taker had before, else one that the giver had not."""
        owned = self._owned[giver][topic]

        def regret(partition: TopicPartition) -> tuple[int, TopicPartition]:
            owner = self._had.get(partition)
            return (0 if owner == taker else 2 if owner == giver else 1), partition

        moved = min(owned, key=regret)
        owned.remove(moved)
        if not owned:
            del self._owned[giver][topic]
        self._loads[giver] -= 1
        self._give(taker, moved)

    def _find_chain(self) -> list[tuple[str, str]]:
        """Members from one that has too many to one that has too few, each with the topic that it hands on."""
        least = min(self._loads.values())
        for start in sorted(self._loads, key=lambda member_id: (-self._loads[member_id], member_id)):
            if self._loads[start] < least + 2:
                return []
            if chain := self._chain_from(start):
                return chain
        return []

    def _chain_from(self, start: str) -> list[tuple[str, str]]:
        """The shortest one, found by widening circles; the last member's topic is empty."""
        came_from: dict[str, tuple[str, str]] = {start: ("", "")}
        seen_topics: set[str] = set()
        waiting = deque([start])
        while waiting:
            giver = waiting.popleft()
            for topic in self._owned[giver]:
                if topic in seen_topics:
                    continue
                seen_topics.add(topic)
                for taker in self._readers[topic]:
                    if taker in came_from:
                        continue
                    came_from[taker] = (giver, topic)
                    if self._loads[taker] <= self._loads[start] - 2:
                        return _path(came_from, taker)
                    waiting.append(taker)
        return []


def _path(came_from: Mapping[str, tuple[str, str]], end: str) -> list[tuple[str, str]]:
    path = [(end, "")]
    while came_from[path[-1][0]][0]:
        path.append(came_from[path[-1][0]])
    return path[::-1]
