"""Requests that change something, one for each API, a client that soon gives up, and what a broker stored."""

from barnabas.client.broker_connection import ConnectionOptions
from barnabas.client.cluster import ClusterOptions
from barnabas.testing import ApiKey, Broker

PATIENCE = ClusterOptions(ConnectionOptions(connect_timeout_seconds=60), retry_timeout_seconds=60)
NOTHING_ELSE = {"assignments": [], "configs": []}
MEMBER = {"group_id": "billing", "generation_id": 1, "member_id": "m", "group_instance_id": None}
CHANGING = {
    ApiKey.CREATE_TOPICS: {"topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1, **NOTHING_ELSE}]},
    ApiKey.DELETE_TOPICS: {"topics": [{"name": "orders"}], "topic_names": ["orders"]},
    ApiKey.CREATE_PARTITIONS: {"topics": [{"name": "orders", "count": 2, "assignments": None}]},
    ApiKey.ELECT_LEADERS: {"topic_partitions": None},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
        "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "replicas": [1]}]}]
    },
    ApiKey.DELETE_RECORDS: {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}]},
    ApiKey.INIT_PRODUCER_ID: {"transactional_id": None, "transaction_timeout_ms": 1000},
    ApiKey.ALTER_CONFIGS: {"resources": [{"resource_type": 2, "resource_name": "orders", "configs": []}]},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"resources": [{"resource_type": 2, "resource_name": "orders", "configs": []}]},
    ApiKey.OFFSET_COMMIT: {
        **MEMBER,
        "generation_id_or_member_epoch": 1,
        "topics": [
            {"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}
        ],
    },
    ApiKey.JOIN_GROUP: {
        **MEMBER,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [],
    },
    ApiKey.HEARTBEAT: MEMBER,
    ApiKey.LEAVE_GROUP: {**MEMBER, "members": [{"member_id": "m"}]},
    ApiKey.SYNC_GROUP: {**MEMBER, "assignments": []},
    ApiKey.DELETE_GROUPS: {"groups_names": ["billing"]},
    ApiKey.OFFSET_DELETE: {"group_id": "billing", "topics": []},
}


def values(broker: Broker, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]
