"""Who may do what: the one place that decides. Everybody may do everything until access control lists exist.

Handlers ask before they do or tell anything, by caller, operation and resource; both codecs lead to the same handler.
"""

from enum import Enum
from typing import Protocol

from barnabas.broker.caller import Caller


class Operation(Enum):
    """What is done to a resource, by Kafka's names."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"


class Resource(Enum):
    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    TRANSACTIONAL_ID = "TransactionalId"


class Authorizer(Protocol):
    allows_all: bool
    """It need not be asked: everybody may do everything."""

    def allows(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool: ...


class AllowAll:
    """What Kafka does when no authorizer is configured."""

    allows_all = True

    def allows(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        return True
