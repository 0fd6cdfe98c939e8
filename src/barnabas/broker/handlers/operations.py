"""What a client is told it may do: a set of operations as the bits of a number, by Kafka's numbers for them."""

from typing import Final

from barnabas.broker.authorizer import Operation
from barnabas.broker.request import Request
from barnabas.broker.services import Services

NOT_TOLD: Final = -(2**31)
"""When nobody asked."""

_BITS: Final = {
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DELETE: 6,
    Operation.ALTER: 7,
    Operation.DESCRIBE: 8,
    Operation.CLUSTER_ACTION: 9,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
    Operation.IDEMPOTENT_WRITE: 12,
}
_OF_TOPICS: Final = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
_OF_THE_CLUSTER: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
_OF_GROUPS: Final = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)


def topic_operations(services: Services, request: Request, name: str) -> int:
    return sum(1 << _BITS[one] for one in _OF_TOPICS if services.allows_topic(request, one, name))


def group_operations(services: Services, request: Request, group_id: str) -> int:
    return sum(1 << _BITS[one] for one in _OF_GROUPS if services.allows_group(request, one, group_id))


def cluster_operations(services: Services, request: Request) -> int:
    return sum(1 << _BITS[one] for one in _OF_THE_CLUSTER if services.allows_cluster(request, one))
