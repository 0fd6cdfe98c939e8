"""One module for each API that the broker serves, and the tables of all of them but Produce and Fetch.

A handler is a callable: it gets a `Request` and what it asks for, decoded, and returns the answer's values by kio's
field names, of every version at once; `barnabas.wire.values` leaves out what a version does not have. What the client
did wrong is in the values. The direct ones decode, encode and give their answer themselves.

What grows with a list in the request is given as a generator, or asks `Services.slices` between two elements: nobody
else waits for a long list. What a request names twice is answered once.
"""

from barnabas.broker.dispatch import DirectHandler, Handler
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
from barnabas.broker.handlers.offset_delete import OffsetDeleteHandler
from barnabas.broker.handlers.offset_fetch import OffsetFetchHandler
from barnabas.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from barnabas.broker.handlers.sync_group import SyncGroupHandler
from barnabas.broker.services import Services
from barnabas.wire.apis import ApiKey


def make_handlers(services: Services) -> dict[int, Handler]:
    """By API key; with the direct ones, every API that is advertised."""
    return {
        ApiKey.LIST_OFFSETS: ListOffsetsHandler(services),
        ApiKey.METADATA: MetadataHandler(services),
        ApiKey.OFFSET_FETCH: OffsetFetchHandler(services),
        ApiKey.FIND_COORDINATOR: FindCoordinatorHandler(services),
        ApiKey.LEAVE_GROUP: LeaveGroupHandler(services),
        ApiKey.DESCRIBE_GROUPS: DescribeGroupsHandler(services),
        ApiKey.LIST_GROUPS: ListGroupsHandler(services),
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


def make_direct_handlers(services: Services) -> dict[int, DirectHandler]:
    """Those that are many, or come first, which answer by themselves: at once, or when it is time."""
    return {
        ApiKey.API_VERSIONS: ApiVersionsHandler(services),
        ApiKey.JOIN_GROUP: JoinGroupHandler(services),
        ApiKey.SYNC_GROUP: SyncGroupHandler(services),
        ApiKey.HEARTBEAT: HeartbeatHandler(services),
    }
