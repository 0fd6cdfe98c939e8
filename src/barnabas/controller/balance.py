"""Which partitions should be led by their preferred replica again, so that no broker leads too few. Pure."""

from collections import Counter
from collections.abc import Iterator

from barnabas.base.ids import TopicPartition
from barnabas.metadata.image import ClusterImage


def unbalanced_partitions(image: ClusterImage, imbalance_percent_max: int) -> Iterator[TopicPartition]:
    """Those that others lead for a registered broker which leads too few of the ones it is preferred for."""
    preferred: Counter[int] = Counter()
    elsewhere: dict[int, list[TopicPartition]] = {}
    for topic in image.topics.values():
        for one in topic.partitions:
            first = one.replicas[0] if one.replicas else None
            if first is None or first not in image.brokers:
                continue
            preferred[first] += 1
            if one.leader != first:
                elsewhere.setdefault(first, []).append(TopicPartition(topic.name, one.index))
    for broker, partitions in elsewhere.items():
        if len(partitions) * 100 > preferred[broker] * imbalance_percent_max:
            yield from partitions
