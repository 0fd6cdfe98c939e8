"""The APIs that are served: key, name, version ranges, and which header goes with which version.

The ranges are those of Apache Kafka 4.3.1's broker listener, stable versions only; a test compares every row with
Kafka's own tables. An API without a row is neither advertised nor answered.

- From `flexible_from` on, a version is *flexible*: compact lengths, tagged fields, request header 2, response header 1.
- The response header of ApiVersions is always version 0, because the client does not yet know what the broker speaks.
- Some APIs are for brokers among themselves (`BROKER_APIS`): served on the same terms, but not advertised. Envelope,
  AlterPartition and BrokerHeartbeat are Kafka's, FetchImage, ReplicaLogInfo, ProbeBroker and ReportOfflineReplicas our
  own (`barnabas.wire.image_messages`, `log_info_messages`, `probe_messages`, `offline_replica_messages`).
- Produce is *advertised* from version 0 but served from 3 (KAFKA-18659): librdkafka before 2.11 takes a broker without
  Produce 0 for one that cannot read compressed batches, and silently sends them plain.
"""

from enum import IntEnum
from typing import Final, NamedTuple


class ApiKey(IntEnum):
    """The numbers of the served APIs."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    ALTER_PARTITION = 56
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_HEARTBEAT = 63
    CONSUMER_GROUP_HEARTBEAT = 68
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    FETCH_IMAGE = 10_001
    REPLICA_LOG_INFO = 10_002
    PROBE_BROKER = 10_003
    REPORT_OFFLINE_REPLICAS = 10_004


class Api(NamedTuple):
    key: ApiKey
    name: str
    version_min: int
    version_max: int
    flexible_from: int
    advertised_min: int

    def serves(self, version: int) -> bool:
        return self.version_min <= version <= self.version_max

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        return 2 if version >= self.flexible_from else 1

    def response_header_version(self, version: int) -> int:
        return 1 if version >= self.flexible_from and self.key != ApiKey.API_VERSIONS else 0


def _api(
    key: ApiKey, name: str, versions: tuple[int, int], flexible_from: int, advertised_min: int | None = None
) -> Api:
    version_min, version_max = versions
    return Api(
        key, name, version_min, version_max, flexible_from, version_min if advertised_min is None else advertised_min
    )


_ROWS: Final = (
    _api(ApiKey.PRODUCE, "Produce", (3, 13), flexible_from=9, advertised_min=0),
    _api(ApiKey.FETCH, "Fetch", (4, 18), flexible_from=12),
    _api(ApiKey.LIST_OFFSETS, "ListOffsets", (1, 11), flexible_from=6),
    _api(ApiKey.METADATA, "Metadata", (0, 13), flexible_from=9),
    _api(ApiKey.OFFSET_COMMIT, "OffsetCommit", (2, 10), flexible_from=8),
    _api(ApiKey.OFFSET_FETCH, "OffsetFetch", (1, 10), flexible_from=6),
    _api(ApiKey.FIND_COORDINATOR, "FindCoordinator", (0, 6), flexible_from=3),
    _api(ApiKey.JOIN_GROUP, "JoinGroup", (0, 9), flexible_from=6),
    _api(ApiKey.HEARTBEAT, "Heartbeat", (0, 4), flexible_from=4),
    _api(ApiKey.LEAVE_GROUP, "LeaveGroup", (0, 5), flexible_from=4),
    _api(ApiKey.SYNC_GROUP, "SyncGroup", (0, 5), flexible_from=4),
    _api(ApiKey.DESCRIBE_GROUPS, "DescribeGroups", (0, 6), flexible_from=5),
    _api(ApiKey.LIST_GROUPS, "ListGroups", (0, 5), flexible_from=3),
    _api(ApiKey.API_VERSIONS, "ApiVersions", (0, 4), flexible_from=3),
    _api(ApiKey.CREATE_TOPICS, "CreateTopics", (2, 7), flexible_from=5),
    _api(ApiKey.DELETE_TOPICS, "DeleteTopics", (1, 6), flexible_from=4),
    _api(ApiKey.DELETE_RECORDS, "DeleteRecords", (0, 2), flexible_from=2),
    _api(ApiKey.INIT_PRODUCER_ID, "InitProducerId", (0, 5), flexible_from=2),
    _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", (2, 4), flexible_from=4),
    _api(ApiKey.DESCRIBE_ACLS, "DescribeAcls", (1, 3), flexible_from=2),
    _api(ApiKey.CREATE_ACLS, "CreateAcls", (1, 3), flexible_from=2),
    _api(ApiKey.DELETE_ACLS, "DeleteAcls", (1, 3), flexible_from=2),
    _api(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", (1, 4), flexible_from=4),
    _api(ApiKey.ALTER_CONFIGS, "AlterConfigs", (0, 2), flexible_from=2),
    _api(ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", (1, 5), flexible_from=2),
    _api(ApiKey.CREATE_PARTITIONS, "CreatePartitions", (0, 3), flexible_from=2),
    _api(ApiKey.DELETE_GROUPS, "DeleteGroups", (0, 2), flexible_from=2),
    _api(ApiKey.ELECT_LEADERS, "ElectLeaders", (0, 2), flexible_from=2),
    _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", (0, 1), flexible_from=1),
    _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", (0, 1), flexible_from=0),
    _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", (0, 0), flexible_from=0),
    _api(ApiKey.OFFSET_DELETE, "OffsetDelete", (0, 0), flexible_from=1),
    _api(ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", (0, 2), flexible_from=0),
    _api(ApiKey.DESCRIBE_PRODUCERS, "DescribeProducers", (0, 0), flexible_from=0),
    _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", (0, 1), flexible_from=0),
    _api(ApiKey.LIST_CONFIG_RESOURCES, "ListConfigResources", (0, 1), flexible_from=0),
    _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", (0, 0), flexible_from=0),
)

_BROKER_ROWS: Final = (
    _api(ApiKey.ALTER_PARTITION, "AlterPartition", (3, 3), flexible_from=0),
    _api(ApiKey.ENVELOPE, "Envelope", (0, 0), flexible_from=0),
    _api(ApiKey.BROKER_HEARTBEAT, "BrokerHeartbeat", (1, 1), flexible_from=0),
    _api(ApiKey.FETCH_IMAGE, "FetchImage", (0, 2), flexible_from=0),
    _api(ApiKey.REPLICA_LOG_INFO, "ReplicaLogInfo", (0, 0), flexible_from=0),
    _api(ApiKey.PROBE_BROKER, "ProbeBroker", (0, 0), flexible_from=0),
    _api(ApiKey.REPORT_OFFLINE_REPLICAS, "ReportOfflineReplicas", (0, 0), flexible_from=0),
)

APIS: Final[dict[int, Api]] = {api.key.value: api for api in _ROWS}
"""The rows by API key: what is advertised."""
BROKER_APIS: Final[dict[int, Api]] = {api.key.value: api for api in _BROKER_ROWS}
ALL_APIS: Final = APIS | BROKER_APIS
"""A key that is not here is not served."""
