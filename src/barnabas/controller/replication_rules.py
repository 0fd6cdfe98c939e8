"""What a topic asks of its replicas, as far as the controller goes by it: settings of the topic, or the defaults.

| setting | here |
|---|---|
| `min.insync.replicas` | part of every partition's state, so that leaders and elections go by the same number |
| `unclean.leader.election.enable` | whether a replica that is not in sync may lead when no other is left |
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from barnabas.metadata.image import ClusterImage


class ReplicationRules(NamedTuple):
    min_insync_replicas: int = 1
    is_unclean_allowed: bool = False


RulesOf: TypeAlias = Callable[[ClusterImage, Mapping[str, str]], ReplicationRules]
"""The rules of a topic with these settings of its own, by the brokers' settings in the image."""


def default_rules(image: ClusterImage, configs: Mapping[str, str]) -> ReplicationRules:
    """Kafka's defaults, whatever is set."""
    return ReplicationRules()
