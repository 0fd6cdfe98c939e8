"""One module for each API that the broker serves, and the one table of all of them.

A handler is a callable: it gets a `Request` and its request object, and rights are asked for before anything is done or
told. Most are coroutines (`Awaited`), registered with the view that they get, which is one class for all versions
(`barnabas.wire.request_views`). They return the answer's values by kio's field names, of every version at once;
`barnabas.wire.values` leaves out what a version does not have. What the client did wrong is in the values. The direct
ones (`Direct`: those that come most, or first) are registered with their reference decoder, and answer by themselves,
at once or when it is time.

A module's text opens with the API's versions and what changes with which, and says what it does not do.

What grows with a list in the request is given as a generator, or asks `Services.slices` between two elements: nobody
else waits for a long list. What a request names twice is answered once.
"""

from barnabas.broker.dispatch import Awaited, Direct, Enveloped, Row, decode_nothing
from barnabas.broker.handlers.acls import CreateAclsHandler, DeleteAclsHandler, DescribeAclsHandler
from barnabas.broker.handlers.alter_configs import AlterConfigsHandler
from barnabas.broker.handlers.alter_partition import AlterPartitionHandler
from barnabas.broker.handlers.alter_partition_reassignments import AlterPartitionReassignmentsHandler
from barnabas.broker.handlers.api_versions import ApiVersionsHandler
from barnabas.broker.handlers.broker_heartbeat import BrokerHeartbeatHandler
from barnabas.broker.handlers.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from barnabas.broker.handlers.create_partitions import CreatePartitionsHandler
from barnabas.broker.handlers.create_topics import CreateTopicsHandler
from barnabas.broker.handlers.delete_groups import DeleteGroupsHandler
from barnabas.broker.handlers.delete_records import DeleteRecordsHandler
from barnabas.broker.handlers.delete_topics import DeleteTopicsHandler
from barnabas.broker.handlers.describe_cluster import DescribeClusterHandler
from barnabas.broker.handlers.describe_configs import DescribeConfigsHandler
from barnabas.broker.handlers.describe_groups import DescribeGroupsHandler
from barnabas.broker.handlers.describe_log_dirs import DescribeLogDirsHandler
from barnabas.broker.handlers.describe_producers import DescribeProducersHandler
from barnabas.broker.handlers.describe_topic_partitions import DescribeTopicPartitionsHandler
from barnabas.broker.handlers.elect_leaders import ElectLeadersHandler
from barnabas.broker.handlers.envelope import EnvelopeHandler
from barnabas.broker.handlers.fetch import FetchHandler, decode_fetch_at_once
from barnabas.broker.handlers.fetch_image import FetchImageHandler
from barnabas.broker.handlers.find_coordinator import FindCoordinatorHandler
from barnabas.broker.handlers.heartbeat import HeartbeatHandler
from barnabas.broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from barnabas.broker.handlers.init_producer_id import InitProducerIdHandler
from barnabas.broker.handlers.join_group import JoinGroupHandler
from barnabas.broker.handlers.leave_group import LeaveGroupHandler
from barnabas.broker.handlers.list_config_resources import ListConfigResourcesHandler
from barnabas.broker.handlers.list_groups import ListGroupsHandler
from barnabas.broker.handlers.list_offsets import ListOffsetsHandler
from barnabas.broker.handlers.list_partition_reassignments import ListPartitionReassignmentsHandler
from barnabas.broker.handlers.metadata import MetadataHandler
from barnabas.broker.handlers.offset_commit import OffsetCommitHandler, decode_commit_at_once
from barnabas.broker.handlers.offset_delete import OffsetDeleteHandler
from barnabas.broker.handlers.offset_fetch import OffsetFetchHandler
from barnabas.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from barnabas.broker.handlers.probe_broker import ProbeBrokerHandler
from barnabas.broker.handlers.produce import ProduceHandler, decode_produce_at_once
from barnabas.broker.handlers.replica_log_info import ReplicaLogInfoHandler
from barnabas.broker.handlers.report_offline_replicas import ReportOfflineReplicasHandler
from barnabas.broker.handlers.sync_group import SyncGroupHandler
from barnabas.broker.services import Services
from barnabas.wire import request_views as views
from barnabas.wire.apis import ApiKey
from barnabas.wire.heartbeat import decode_heartbeat_request


def make_rows(services: Services) -> dict[int, Row]:
    """The one place where APIs are registered: by API key, every API that is served."""
    return {
        ApiKey.PRODUCE: Direct(ProduceHandler(services), decode_produce_at_once, is_ordered=True),
        ApiKey.FETCH: Direct(FetchHandler(services), decode_fetch_at_once),
        ApiKey.LIST_OFFSETS: Awaited(views.ListOffsetsRequest, ListOffsetsHandler(services)),
        ApiKey.METADATA: Awaited(views.MetadataRequest, MetadataHandler(services)),
        ApiKey.OFFSET_COMMIT: Direct(OffsetCommitHandler(services), decode_commit_at_once, is_ordered=True),
        ApiKey.OFFSET_FETCH: Awaited(views.OffsetFetchRequest, OffsetFetchHandler(services)),
        ApiKey.FIND_COORDINATOR: Awaited(views.FindCoordinatorRequest, FindCoordinatorHandler(services)),
        ApiKey.JOIN_GROUP: Direct(JoinGroupHandler(services), decode_nothing),
        ApiKey.HEARTBEAT: Direct(HeartbeatHandler(services), decode_heartbeat_request),
        ApiKey.LEAVE_GROUP: Awaited(views.LeaveGroupRequest, LeaveGroupHandler(services)),
        ApiKey.SYNC_GROUP: Direct(SyncGroupHandler(services), decode_nothing),
        ApiKey.DESCRIBE_GROUPS: Awaited(views.DescribeGroupsRequest, DescribeGroupsHandler(services)),
        ApiKey.LIST_GROUPS: Awaited(views.ListGroupsRequest, ListGroupsHandler(services)),
        ApiKey.API_VERSIONS: Direct(ApiVersionsHandler(services), decode_nothing),
        ApiKey.CREATE_TOPICS: Awaited(views.CreateTopicsRequest, CreateTopicsHandler(services), is_for_controller=True),
        ApiKey.DELETE_TOPICS: Awaited(views.DeleteTopicsRequest, DeleteTopicsHandler(services), is_for_controller=True),
        ApiKey.DELETE_RECORDS: Awaited(views.DeleteRecordsRequest, DeleteRecordsHandler(services)),
        ApiKey.INIT_PRODUCER_ID: Awaited(views.InitProducerIdRequest, InitProducerIdHandler(services)),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Awaited(
            views.OffsetForLeaderEpochRequest, OffsetForLeaderEpochHandler(services)
        ),
        ApiKey.DESCRIBE_ACLS: Awaited(views.DescribeAclsRequest, DescribeAclsHandler(services)),
        ApiKey.CREATE_ACLS: Awaited(views.CreateAclsRequest, CreateAclsHandler(services)),
        ApiKey.DELETE_ACLS: Awaited(views.DeleteAclsRequest, DeleteAclsHandler(services)),
        ApiKey.DESCRIBE_CONFIGS: Awaited(views.DescribeConfigsRequest, DescribeConfigsHandler(services)),
        ApiKey.ALTER_CONFIGS: Awaited(views.AlterConfigsRequest, AlterConfigsHandler(services), is_for_controller=True),
        ApiKey.DESCRIBE_LOG_DIRS: Awaited(views.DescribeLogDirsRequest, DescribeLogDirsHandler(services)),
        ApiKey.CREATE_PARTITIONS: Awaited(
            views.CreatePartitionsRequest, CreatePartitionsHandler(services), is_for_controller=True
        ),
        ApiKey.DELETE_GROUPS: Awaited(views.DeleteGroupsRequest, DeleteGroupsHandler(services)),
        ApiKey.ELECT_LEADERS: Awaited(views.ElectLeadersRequest, ElectLeadersHandler(services), is_for_controller=True),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Awaited(
            views.IncrementalAlterConfigsRequest, IncrementalAlterConfigsHandler(services), is_for_controller=True
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Awaited(
            views.AlterPartitionReassignmentsRequest,
            AlterPartitionReassignmentsHandler(services),
            is_for_controller=True,
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Awaited(
            views.ListPartitionReassignmentsRequest, ListPartitionReassignmentsHandler(services)
        ),
        ApiKey.OFFSET_DELETE: Awaited(views.OffsetDeleteRequest, OffsetDeleteHandler(services)),
        ApiKey.DESCRIBE_CLUSTER: Awaited(views.DescribeClusterRequest, DescribeClusterHandler(services)),
        ApiKey.DESCRIBE_PRODUCERS: Awaited(views.DescribeProducersRequest, DescribeProducersHandler(services)),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: Awaited(
            views.ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatHandler(services)
        ),
        ApiKey.LIST_CONFIG_RESOURCES: Awaited(views.ListConfigResourcesRequest, ListConfigResourcesHandler(services)),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Awaited(
            views.DescribeTopicPartitionsRequest, DescribeTopicPartitionsHandler(services)
        ),
        ApiKey.ALTER_PARTITION: Awaited(views.AlterPartitionRequest, AlterPartitionHandler(services)),
        ApiKey.BROKER_HEARTBEAT: Awaited(views.BrokerHeartbeatRequest, BrokerHeartbeatHandler(services)),
        ApiKey.ENVELOPE: Enveloped(EnvelopeHandler(services)),
        ApiKey.FETCH_IMAGE: Direct(FetchImageHandler(services), decode_nothing),
        ApiKey.REPLICA_LOG_INFO: Awaited(views.ReplicaLogInfoRequest, ReplicaLogInfoHandler(services)),
        ApiKey.PROBE_BROKER: Awaited(views.ProbeBrokerRequest, ProbeBrokerHandler(services)),
        ApiKey.REPORT_OFFLINE_REPLICAS: Awaited(
            views.ReportOfflineReplicasRequest, ReportOfflineReplicasHandler(services)
        ),
    }
