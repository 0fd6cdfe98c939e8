"""Requests as handlers see them: one class for all versions of an API, with the fields that a handler reads.

Messages and fields have Kafka's names, as kio writes them; durations are numbers of milliseconds, and a zero UUID is
None. A comment says from which version on a field is on the wire; before, it has its default. `reader` makes these
without a detour through kio's classes (`message_shapes` has the rules), and drops what is not declared here.

Produce, Fetch, OffsetCommit, Heartbeat, JoinGroup, SyncGroup and ApiVersions are read by hand, in modules of their own.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.base.ids import NO_EPOCH, NO_PRODUCER

BROKER_ENDPOINTS: Final = 1
"""The endpoint type of DescribeCluster before it had one."""
GROUP_KEY: Final = 0
"""The key type of FindCoordinator before it had one."""
SET_CONFIG: Final = 0
"""The operation on each setting of AlterConfigs, which knows no other."""


# -- the cluster and its topics --------------------------------------------------------------------------------------


class MetadataRequestTopic(NamedTuple):
    name: str | None  # null from 10
    topic_id: UUID | None = None  # from 10


class MetadataRequest(NamedTuple):
    topics: Sequence[MetadataRequestTopic] | None  # null from 1
    allow_auto_topic_creation: bool = True  # from 4
    include_cluster_authorized_operations: bool = False  # 8 to 10
    include_topic_authorized_operations: bool = False  # from 8


class DescribeClusterRequest(NamedTuple):
    include_cluster_authorized_operations: bool
    endpoint_type: int = BROKER_ENDPOINTS  # from 1


class DescribedTopic(NamedTuple):
    name: str


class Cursor(NamedTuple):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsRequest(NamedTuple):
    topics: Sequence[DescribedTopic]
    response_partition_limit: int
    cursor: Cursor | None


class CreatableReplicaAssignment(NamedTuple):
    partition_index: int
    broker_ids: Sequence[int]


class CreatableTopicConfig(NamedTuple):
    name: str
    value: str | None


class CreatableTopic(NamedTuple):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: Sequence[CreatableReplicaAssignment]
    configs: Sequence[CreatableTopicConfig]


class CreateTopicsRequest(NamedTuple):
    topics: Sequence[CreatableTopic]
    timeout_ms: int
    validate_only: bool


class CreatePartitionsAssignment(NamedTuple):
    broker_ids: Sequence[int]


class CreatePartitionsTopic(NamedTuple):
    name: str
    count: int  # type: ignore[assignment]  # hides a method of tuples that nobody calls
    assignments: Sequence[CreatePartitionsAssignment] | None


class CreatePartitionsRequest(NamedTuple):
    topics: Sequence[CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool


class DeleteTopicState(NamedTuple):
    name: str | None
    topic_id: UUID | None


class DeleteTopicsRequest(NamedTuple):
    timeout_ms: int
    topic_names: Sequence[str] = ()  # until 5
    topics: Sequence[DeleteTopicState] = ()  # from 6


# -- partitions and their logs ---------------------------------------------------------------------------------------


class ListOffsetsPartition(NamedTuple):
    partition_index: int
    timestamp: int
    current_leader_epoch: int = NO_EPOCH  # from 4


class ListOffsetsTopic(NamedTuple):
    name: str
    partitions: Sequence[ListOffsetsPartition]


class ListOffsetsRequest(NamedTuple):
    replica_id: int
    topics: Sequence[ListOffsetsTopic]
    isolation_level: int = 0  # from 2


class OffsetForLeaderPartition(NamedTuple):
    partition: int
    current_leader_epoch: int
    leader_epoch: int


class OffsetForLeaderTopic(NamedTuple):
    topic: str
    partitions: Sequence[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(NamedTuple):
    topics: Sequence[OffsetForLeaderTopic]


class DeleteRecordsPartition(NamedTuple):
    partition_index: int
    offset: int


class DeleteRecordsTopic(NamedTuple):
    name: str
    partitions: Sequence[DeleteRecordsPartition]


class DeleteRecordsRequest(NamedTuple):
    topics: Sequence[DeleteRecordsTopic]
    timeout_ms: int


class DescribableLogDirTopic(NamedTuple):
    topic: str
    partitions: Sequence[int]


class DescribeLogDirsRequest(NamedTuple):
    topics: Sequence[DescribableLogDirTopic] | None


class DescribeProducersTopic(NamedTuple):
    name: str
    partition_indexes: Sequence[int]


class DescribeProducersRequest(NamedTuple):
    topics: Sequence[DescribeProducersTopic]


class InitProducerIdRequest(NamedTuple):
    transactional_id: str | None
    producer_id: int = NO_PRODUCER  # from 3
    producer_epoch: int = NO_EPOCH  # from 3


# -- settings --------------------------------------------------------------------------------------------------------


class DescribeConfigsResource(NamedTuple):
    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None


class DescribeConfigsRequest(NamedTuple):
    resources: Sequence[DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool = False  # from 3


class AlterableConfig(NamedTuple):
    name: str
    value: str | None
    config_operation: int = SET_CONFIG  # of IncrementalAlterConfigs


class AlterConfigsResource(NamedTuple):
    resource_type: int
    resource_name: str
    configs: Sequence[AlterableConfig]


class AlterConfigsRequest(NamedTuple):
    resources: Sequence[AlterConfigsResource]
    validate_only: bool


class IncrementalAlterConfigsRequest(NamedTuple):
    resources: Sequence[AlterConfigsResource]
    validate_only: bool


class ListConfigResourcesRequest(NamedTuple):
    resource_types: Sequence[int] = ()  # from 1


# -- groups ----------------------------------------------------------------------------------------------------------


class FindCoordinatorRequest(NamedTuple):
    key: str = ""  # until 3
    key_type: int = GROUP_KEY  # from 1
    coordinator_keys: Sequence[str] = ()  # from 4


class MemberIdentity(NamedTuple):
    member_id: str
    group_instance_id: str | None
    reason: str | None = None  # from 5


class LeaveGroupRequest(NamedTuple):
    group_id: str
    member_id: str = ""  # until 2
    members: Sequence[MemberIdentity] = ()  # from 3


class OffsetFetchTopic(NamedTuple):
    partition_indexes: Sequence[int]
    name: str = ""  # until 9
    topic_id: UUID | None = None  # from 10


class OffsetFetchGroup(NamedTuple):
    group_id: str
    topics: Sequence[OffsetFetchTopic] | None


class OffsetFetchRequest(NamedTuple):
    group_id: str = ""  # until 7
    topics: Sequence[OffsetFetchTopic] | None = None  # until 7, null from 2
    groups: Sequence[OffsetFetchGroup] = ()  # from 8


class OffsetDeletePartition(NamedTuple):
    partition_index: int


class OffsetDeleteTopic(NamedTuple):
    name: str
    partitions: Sequence[OffsetDeletePartition]


class OffsetDeleteRequest(NamedTuple):
    group_id: str
    topics: Sequence[OffsetDeleteTopic]


class DescribeGroupsRequest(NamedTuple):
    groups: Sequence[str]
    include_authorized_operations: bool = False  # from 3


class ListGroupsRequest(NamedTuple):
    states_filter: Sequence[str] = ()  # from 4
    types_filter: Sequence[str] = ()  # from 5


class DeleteGroupsRequest(NamedTuple):
    groups_names: Sequence[str]


class ConsumerGroupHeartbeatRequest(NamedTuple):
    """Nothing of it is read."""


# -- access control --------------------------------------------------------------------------------------------------


class DescribeAclsRequest(NamedTuple):
    """Nothing of it is read."""


class AclCreation(NamedTuple):
    """Counted only."""


class CreateAclsRequest(NamedTuple):
    creations: Sequence[AclCreation]


class DeleteAclsFilter(NamedTuple):
    """Counted only."""


class DeleteAclsRequest(NamedTuple):
    filters: Sequence[DeleteAclsFilter]


class ElectLeadersTopic(NamedTuple):
    topic: str
    partitions: Sequence[int]


class ElectLeadersRequest(NamedTuple):
    topic_partitions: Sequence[ElectLeadersTopic] | None
    timeout_ms: int
    election_type: int = 0  # from 1


class ReassignablePartition(NamedTuple):
    partition_index: int
    replicas: Sequence[int] | None


class ReassignableTopic(NamedTuple):
    name: str
    partitions: Sequence[ReassignablePartition]


class AlterPartitionReassignmentsRequest(NamedTuple):
    timeout_ms: int
    topics: Sequence[ReassignableTopic]
    allow_replication_factor_change: bool = True  # from 1


class ListPartitionReassignmentsTopic(NamedTuple):
    name: str
    partition_indexes: Sequence[int]


class ListPartitionReassignmentsRequest(NamedTuple):
    topics: Sequence[ListPartitionReassignmentsTopic] | None


# -- between brokers -------------------------------------------------------------------------------------------------


class EnvelopeRequest(NamedTuple):
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes


class FetchImageRequest(NamedTuple):
    broker_id: int
    broker_epoch: int
    controller_epoch: int
    position: int
    max_wait_ms: int


class IsrMember(NamedTuple):
    broker_id: int
    broker_epoch: int


class AlterPartitionPartition(NamedTuple):
    partition_index: int
    leader_epoch: int
    new_isr_with_epochs: Sequence[IsrMember]
    partition_epoch: int


class AlterPartitionTopic(NamedTuple):
    topic_id: UUID | None
    partitions: Sequence[AlterPartitionPartition]


class AlterPartitionRequest(NamedTuple):
    broker_id: int
    broker_epoch: int
    topics: Sequence[AlterPartitionTopic]


class BrokerHeartbeatRequest(NamedTuple):
    broker_id: int
    broker_epoch: int
    want_shut_down: bool


class ReplicaLogInfoTopic(NamedTuple):
    topic_id: UUID | None
    partitions: Sequence[int]


class ReplicaLogInfoRequest(NamedTuple):
    topics: Sequence[ReplicaLogInfoTopic]


class ProbeBrokerRequest(NamedTuple):
    broker_id: int
    broker_epoch: int


class OfflineTopic(NamedTuple):
    topic_id: UUID | None
    partitions: Sequence[int]


class ReportOfflineReplicasRequest(NamedTuple):
    broker_id: int
    broker_epoch: int
    topics: Sequence[OfflineTopic]
