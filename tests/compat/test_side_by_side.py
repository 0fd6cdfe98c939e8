"""Every served API in every version, with good and bad requests: Barnabas answers what Apache Kafka 4.3.1 answers."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.codecs import REFERENCE, default_codecs
from tests.support.codec_runs import check_codecs
from tests.support.kafka import KafkaNode
from tests.support.side_by_side import Intended, Pair, Side
from tests.support.side_by_side_absent import (
    tell_consumer_group_heartbeat,
    tell_create_acls,
    tell_delete_acls,
    tell_describe_acls,
)
from tests.support.side_by_side_cast import GROUP_SETTINGS
from tests.support.side_by_side_configs import tell_alter_configs, tell_describe_configs, tell_incremental_alter_configs
from tests.support.side_by_side_fetch import (
    tell_delete_records,
    tell_describe_producers,
    tell_fetch,
    tell_list_offsets,
    tell_offset_for_leader_epoch,
)
from tests.support.side_by_side_group_admin import (
    tell_delete_groups,
    tell_describe_groups,
    tell_find_coordinator,
    tell_list_groups,
)
from tests.support.side_by_side_group_offsets import tell_offset_commit, tell_offset_delete, tell_offset_fetch
from tests.support.side_by_side_groups import tell_heartbeat, tell_join_group, tell_leave_group, tell_sync_group
from tests.support.side_by_side_produce import tell_init_producer_id, tell_produce
from tests.support.side_by_side_topics import (
    tell_alter_partition_reassignments,
    tell_api_versions,
    tell_create_partitions,
    tell_create_topics,
    tell_delete_topics,
    tell_describe_cluster,
    tell_describe_log_dirs,
    tell_describe_topic_partitions,
    tell_elect_leaders,
    tell_list_config_resources,
    tell_list_partition_reassignments,
    tell_metadata,
)

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SETTINGS = {"auto.create.topics.enable": "true", "num.partitions": "1", **GROUP_SETTINGS}

NO_TRANSACTIONS = "there are no transactions yet: clients are to stop at once instead of asking again"
KAFKA_SETS_MIN_ISR = "a new cluster of Kafka's sets min.insync.replicas for all brokers, to the default"
TYPING_MISTAKES = "a setting that nothing here knows is a typing mistake; Kafka keeps it for a plugin that may want it"

INTENDED = (
    Intended(ApiKey.PRODUCE, "records that cannot be decompressed are corrupt, not our failure", "codec *"),
    Intended(
        ApiKey.PRODUCE, "a timestamp is refused for the batch, with the range in words", "time *", "*record_errors"
    ),
    Intended(ApiKey.PRODUCE, NO_TRANSACTIONS, "transactional id"),
    Intended(ApiKey.PRODUCE, "a client id is no authorisation to write to internal topics", "written by tools"),
    Intended(
        ApiKey.PRODUCE, "both batches are kept, where Kafka drops the first without a word", "twice the same partition"
    ),
    Intended(
        ApiKey.FETCH,
        "null and an empty array of aborted transactions mean the same to every client",
        field="*aborted_transactions",
    ),
    Intended(ApiKey.FETCH, "a session of no partitions is not kept", "session: made of nothing", "session_id"),
    Intended(ApiKey.API_VERSIONS, "Kafka's features are those of its own quorum", field="*_features*"),
    Intended(
        ApiKey.METADATA, "neither name nor id is the client's fault, not the broker's", "by neither", "*error_code"
    ),
    Intended(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "an empty name is the client's fault, not the broker's", "name ''"),
    Intended(ApiKey.CREATE_TOPICS, KAFKA_SETS_MIN_ISR, field="*(min.insync.replicas).config_source"),
    Intended(ApiKey.DESCRIBE_CONFIGS, KAFKA_SETS_MIN_ISR, field="*(min.insync.replicas).*"),
    Intended(ApiKey.DESCRIBE_CONFIGS, KAFKA_SETS_MIN_ISR, "all brokers*", "*configs"),
    Intended(ApiKey.DESCRIBE_CONFIGS, "a resource is described once, however often it is named", "several", "results"),
    Intended(
        ApiKey.DESCRIBE_CONFIGS,
        "there are no such threads, so that a change would have no effect",
        field="*(num.io.threads).read_only",
    ),
    Intended(ApiKey.ALTER_CONFIGS, f"{KAFKA_SETS_MIN_ISR}, and this API would take it away", "all brokers*"),
    Intended(ApiKey.ALTER_CONFIGS, TYPING_MISTAKES, "broker, unknown setting*"),
    Intended(ApiKey.INCREMENTAL_ALTER_CONFIGS, TYPING_MISTAKES, "broker, unknown setting*"),
    Intended(
        ApiKey.DELETE_TOPICS,
        "the topic is deleted once and then unknown, where Kafka refuses both",
        "by name, and by id",
    ),
    Intended(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, "no message and an empty one mean the same", "nothing", "error_message"
    ),
    Intended(ApiKey.CONSUMER_GROUP_HEARTBEAT, "as a Kafka answers in which KIP-848 is turned off"),
    Intended(ApiKey.DESCRIBE_GROUPS, "a group with thousands of members is shown once", "one twice"),
    Intended(ApiKey.FIND_COORDINATOR, NO_TRANSACTIONS, "transaction *"),
    Intended(ApiKey.INIT_PRODUCER_ID, NO_TRANSACTIONS, "transactional id", "error_code"),
    Intended(ApiKey.INIT_PRODUCER_ID, NO_TRANSACTIONS, "timeout of a transaction *", "error_code"),
)
"""Where Barnabas means to answer otherwise. A row that is not needed any more fails its API's test."""

STORIES: dict[ApiKey, Callable[[Pair], None]] = {
    ApiKey.PRODUCE: tell_produce,
    ApiKey.INIT_PRODUCER_ID: tell_init_producer_id,
    ApiKey.FETCH: tell_fetch,
    ApiKey.LIST_OFFSETS: tell_list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: tell_offset_for_leader_epoch,
    ApiKey.DELETE_RECORDS: tell_delete_records,
    ApiKey.DESCRIBE_PRODUCERS: tell_describe_producers,
    ApiKey.API_VERSIONS: tell_api_versions,
    ApiKey.METADATA: tell_metadata,
    ApiKey.FIND_COORDINATOR: tell_find_coordinator,
    ApiKey.JOIN_GROUP: tell_join_group,
    ApiKey.SYNC_GROUP: tell_sync_group,
    ApiKey.HEARTBEAT: tell_heartbeat,
    ApiKey.LEAVE_GROUP: tell_leave_group,
    ApiKey.OFFSET_COMMIT: tell_offset_commit,
    ApiKey.OFFSET_FETCH: tell_offset_fetch,
    ApiKey.OFFSET_DELETE: tell_offset_delete,
    ApiKey.DESCRIBE_GROUPS: tell_describe_groups,
    ApiKey.LIST_GROUPS: tell_list_groups,
    ApiKey.DELETE_GROUPS: tell_delete_groups,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: tell_describe_topic_partitions,
    ApiKey.CREATE_TOPICS: tell_create_topics,
    ApiKey.DELETE_TOPICS: tell_delete_topics,
    ApiKey.CREATE_PARTITIONS: tell_create_partitions,
    ApiKey.ELECT_LEADERS: tell_elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: tell_alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: tell_list_partition_reassignments,
    ApiKey.DESCRIBE_CONFIGS: tell_describe_configs,
    ApiKey.ALTER_CONFIGS: tell_alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: tell_incremental_alter_configs,
    ApiKey.DESCRIBE_CLUSTER: tell_describe_cluster,
    ApiKey.DESCRIBE_LOG_DIRS: tell_describe_log_dirs,
    ApiKey.LIST_CONFIG_RESOURCES: tell_list_config_resources,
    ApiKey.DESCRIBE_ACLS: tell_describe_acls,
    ApiKey.CREATE_ACLS: tell_create_acls,
    ApiKey.DELETE_ACLS: tell_delete_acls,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: tell_consumer_group_heartbeat,
}


READ_BY_BOTH = (
    *(ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP),
    *(ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.DESCRIBE_GROUPS),
)
"""Those that have a compiled codec, and the groups' that build on them: told twice, each time beside a new Kafka."""


@pytest.fixture(scope="module")
def sides(codecs: str, kafka: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with KafkaNode(tmp_path_factory.mktemp("kafka"), SETTINGS) as node, Broker(SETTINGS) as broker:
        ours, kafkas = Side("Barnabas", broker.bootstrap), Side("Kafka", node.bootstrap_servers)
        yield ours, kafkas
        check_codecs(broker, codecs)
        ours.close()
        kafkas.close()


def test_every_served_api_has_a_story() -> None:
    assert STORIES.keys() == APIS.keys()


@pytest.mark.parametrize("codecs", [default_codecs().name], indirect=True, scope="module")
@pytest.mark.parametrize("api_key", STORIES, ids=lambda api_key: api_key.name.lower())
def test_answers_are_those_of_kafka(sides: tuple[Side, Side], api_key: ApiKey) -> None:
    compare(sides, api_key)


@pytest.mark.parametrize("codecs", [REFERENCE.name], indirect=True, scope="module")
@pytest.mark.parametrize("api_key", READ_BY_BOTH, ids=lambda api_key: api_key.name.lower())
def test_answers_by_the_reference_codecs_are_those_of_kafka(sides: tuple[Side, Side], api_key: ApiKey) -> None:
    compare(sides, api_key)


def compare(sides: tuple[Side, Side], api_key: ApiKey) -> None:
    pair = Pair(*sides, INTENDED)
    STORIES[api_key](pair)
    assert pair.compared > 0
    unexplained = "\n".join(str(difference) for difference in pair.unexplained())
    assert not unexplained, f"{len(pair.unexplained())} fields differ:\n{unexplained}"
    assert pair.unused(api_key) == []
