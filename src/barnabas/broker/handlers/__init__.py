"""One module for each API that the broker serves, and the one table of all of them.

A handler is a callable: it gets a `Request` and its request object, and rights are asked for before anything is done or
told. Most are coroutines that return the answer's values by kio's field names, of every version at once;
`barnabas.wire.values` leaves out what a version does not have. What the client did wrong is in the values. The direct
ones (`Direct`: those that come most, or first) are registered with their reference decoder, and answer by themselves,
at once or when it is time.

What grows with a list in the request is given as a generator, or asks `Services.slices` between two elements: nobody
else waits for a long list. What a request names twice is answered once.
"""

from barnabas.broker.dispatch import Direct, Handler
from barnabas.broker.handlers.acls import CreateAclsHandler, DeleteAclsHandler, DescribeAclsHandler
from barnabas.broker.handlers.alter_configs import AlterConfigsHandler
from barnabas.broker.handlers.api_versions import ApiVersionsHandler
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
from barnabas.broker.handlers.fetch import FetchHandler, decode_fetch_at_once
from barnabas.broker.handlers.find_coordinator import FindCoordinatorHandler
from barnabas.broker.handlers.heartbeat import HeartbeatHandler
from barnabas.broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from barnabas.broker.handlers.init_producer_id import InitProducerIdHandler
from barnabas.broker.handlers.join_group import JoinGroupHandler
from barnabas.broker.handlers.leave_group import LeaveGroupHandler
from barnabas.broker.handlers.list_config_resources import ListConfigResourcesHandler
from barnabas.broker.handlers.list_groups import ListGroupsHandler
from barnabas.broker.handlers.list_offsets import ListOffsetsHandler
from barnabas.broker.handlers.metadata import MetadataHandler
from barnabas.broker.handlers.offset_commit import OffsetCommitHandler
from barnabas.broker.handlers.offset_delete import OffsetDeleteHandler
from barnabas.broker.handlers.offset_fetch import OffsetFetchHandler
from barnabas.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.broker.handlers.sync_group import SyncGroupHandler
from barnabas.broker.services import Services
from barnabas.wire.apis import ApiKey
from barnabas.wire.commit import decode_commit
from barnabas.wire.heartbeat import decode_heartbeat_request
from barnabas.wire.produce import decode_produce


def make_rows(services: Services) -> dict[int, Direct | Handler]:
    """The one place where APIs are registered: by API key, every API that is advertised."""
    return {
        ApiKey.PRODUCE: Direct(ProduceHandler(services), decode_produce),
        ApiKey.FETCH: Direct(FetchHandler(services), decode_fetch_at_once),
        ApiKey.LIST_OFFSETS: ListOffsetsHandler(services),
        ApiKey.METADATA: MetadataHandler(services),
        ApiKey.OFFSET_COMMIT: Direct(OffsetCommitHandler(services), decode_commit),
        ApiKey.OFFSET_FETCH: OffsetFetchHandler(services),
        ApiKey.FIND_COORDINATOR: FindCoordinatorHandler(services),
        ApiKey.JOIN_GROUP: Direct(JoinGroupHandler(services)),
        ApiKey.HEARTBEAT: Direct(HeartbeatHandler(services), decode_heartbeat_request),
        ApiKey.LEAVE_GROUP: LeaveGroupHandler(services),
        ApiKey.SYNC_GROUP: Direct(SyncGroupHandler(services)),
        ApiKey.DESCRIBE_GROUPS: DescribeGroupsHandler(services),
        ApiKey.LIST_GROUPS: ListGroupsHandler(services),
        ApiKey.API_VERSIONS: Direct(ApiVersionsHandler(services)),
        ApiKey.CREATE_TOPICS: CreateTopicsHandler(services),
        ApiKey.DELETE_TOPICS: DeleteTopicsHandler(services),
        ApiKey.DELETE_RECORDS: DeleteRecordsHandler(services),
        ApiKey.INIT_PRODUCER_ID: InitProducerIdHandler(services),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(services),
        ApiKey.DESCRIBE_ACLS: DescribeAclsHandler(services),
        ApiKey.CREATE_ACLS: CreateAclsHandler(services),
        ApiKey.DELETE_ACLS: DeleteAclsHandler(services),
        ApiKey.DESCRIBE_CONFIGS: DescribeConfigsHandler(services),
        ApiKey.ALTER_CONFIGS: AlterConfigsHandler(services),
        ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsHandler(services),
        ApiKey.CREATE_PARTITIONS: CreatePartitionsHandler(services),
        ApiKey.DELETE_GROUPS: DeleteGroupsHandler(services),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigsHandler(services),
        ApiKey.OFFSET_DELETE: OffsetDeleteHandler(services),
        ApiKey.DESCRIBE_CLUSTER: DescribeClusterHandler(services),
        ApiKey.DESCRIBE_PRODUCERS: DescribeProducersHandler(services),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: ConsumerGroupHeartbeatHandler(services),
        ApiKey.LIST_CONFIG_RESOURCES: ListConfigResourcesHandler(services),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitionsHandler(services),
    }
