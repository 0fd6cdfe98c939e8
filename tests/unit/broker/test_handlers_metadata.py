"""ApiVersions, Metadata, DescribeCluster and DescribeTopicPartitions."""

from pathlib import Path
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from barnabas.wire.apis import APIS, ApiKey
from tests.support.broker_parts import NODE_ID, ServedBroker, served_broker
from tests.support.network import run

NOT_TOLD = -(2**31)
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096
UNKNOWN_ID = UUID(int=77)


def names(*topics: str) -> list[dict[str, str]]:
    return [{"name": topic} for topic in topics]


async def until_exists(broker: ServedBroker, topic: str) -> None:
    await broker.broker.replicas.wait_for(lambda image: topic in image.topics)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_every_served_api(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            software = {"client_software_name": "test", "client_software_version": "1.0"}
            answer = await broker.ask(ApiKey.API_VERSIONS, version, **software)
            told = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}

            assert answer.error_code is ErrorCode.none
            assert told == {key: (api.advertised_min, api.version_max) for key, api in APIS.items()}

    run(scenario())


def test_api_versions_of_client_with_bad_name_is_invalid_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            answer = await broker.ask(ApiKey.API_VERSIONS, 4, client_software_name="-x", client_software_version="1.0")

            assert answer.error_code is ErrorCode.invalid_request
            assert answer.api_keys == ()

    run(scenario())


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_every_version_shows_topic_and_broker(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders", 2)
            answer = await broker.ask(ApiKey.METADATA, version, topics=names("orders"))
            [topic] = answer.topics
            [node] = answer.brokers
            [listener] = broker.broker.listeners

            assert (node.node_id, node.host, node.port) == (NODE_ID, "127.0.0.1", listener.port)
            assert (topic.name, topic.error_code) == ("orders", ErrorCode.none)
            assert [(one.partition_index, one.leader_id, one.isr_nodes) for one in topic.partitions] == [
                (0, NODE_ID, (NODE_ID,)),
                (1, NODE_ID, (NODE_ID,)),
            ]

    run(scenario())


def test_metadata_without_topics_means_all_in_version_0_and_none_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")

            assert len((await broker.ask(ApiKey.METADATA, 0, topics=[])).topics) == 1
            assert (await broker.ask(ApiKey.METADATA, 1, topics=[])).topics == ()
            assert len((await broker.ask(ApiKey.METADATA, 1, topics=None)).topics) == 1

    run(scenario())


def test_metadata_by_id_finds_the_topic_and_says_which_id_is_unknown(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            known_id = broker.partition("orders").topic_id
            wanted = [{"topic_id": known_id, "name": None}, {"topic_id": UNKNOWN_ID, "name": None}]
            found, missing = (await broker.ask(ApiKey.METADATA, 12, topics=wanted)).topics

            assert (found.name, found.topic_id) == ("orders", known_id)
            assert (missing.name, missing.topic_id, missing.error_code) == (
                None,
                UNKNOWN_ID,
                ErrorCode.unknown_topic_id,
            )

    run(scenario())


def test_metadata_with_ids_before_version_12_is_invalid_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            wanted = [{"topic_id": UNKNOWN_ID, "name": "orders"}]
            [topic] = (await broker.ask(ApiKey.METADATA, 11, topics=wanted)).topics

            assert topic.error_code is ErrorCode.invalid_request

    run(scenario())


def test_metadata_of_unknown_topic_says_so_and_makes_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, num_partitions="3") as broker:
            [topic] = (await broker.ask(ApiKey.METADATA, 12, topics=names("orders"))).topics
            assert topic.error_code is ErrorCode.unknown_topic_or_partition
            await until_exists(broker, "orders")
            [topic] = (await broker.ask(ApiKey.METADATA, 12, topics=names("orders"))).topics

            assert topic.error_code is ErrorCode.none
            assert len(topic.partitions) == 3

    run(scenario())


def test_metadata_of_the_offsets_topic_makes_it_as_its_coordinator_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {"num_partitions": "3", "offsets_topic_num_partitions": "2", "offsets_topic_replication_factor": "1"}
        async with served_broker(tmp_path, **settings) as broker:
            [topic] = (await broker.ask(ApiKey.METADATA, 12, topics=names("__consumer_offsets"))).topics
            assert (topic.error_code, topic.is_internal) == (ErrorCode.unknown_topic_or_partition, True)
            await until_exists(broker, "__consumer_offsets")
            [topic] = (await broker.ask(ApiKey.METADATA, 12, topics=names("__consumer_offsets"))).topics

            assert (topic.error_code, len(topic.partitions)) == (ErrorCode.none, 2)
            configs = broker.broker.replicas.image.topic_configs["__consumer_offsets"]
            assert configs["cleanup.policy"] == "compact"

    run(scenario())


@pytest.mark.parametrize(
    ("settings", "allow", "topic"),
    [
        ({"auto_create_topics_enable": "false"}, True, "orders"),
        ({}, False, "orders"),
        ({"auto_create_topics_enable": "false"}, True, "__consumer_offsets"),
        ({}, False, "__consumer_offsets"),
        ({}, True, "__transaction_state"),
    ],
)
def test_metadata_makes_no_topic_where_that_is_not_allowed(
    tmp_path: Path, settings: dict[str, str], allow: bool, topic: str
) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **settings) as broker:
            [answer] = (
                await broker.ask(ApiKey.METADATA, 12, topics=names(topic), allow_auto_topic_creation=allow)
            ).topics
            await broker.create("later")  # whatever was begun before is done by now

            assert answer.error_code is ErrorCode.unknown_topic_or_partition
            assert list(broker.broker.replicas.image.topics) == ["later"]

    run(scenario())


def test_metadata_of_bad_name_is_invalid_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            topics = (await broker.ask(ApiKey.METADATA, 9, topics=names("bad name", ""))).topics

            assert [one.error_code for one in topics] == [ErrorCode.invalid_topic_exception] * 2

    run(scenario())


def test_metadata_tells_operations_only_when_asked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            quiet = await broker.ask(ApiKey.METADATA, 10, topics=names("orders"))
            told = await broker.ask(
                ApiKey.METADATA,
                10,
                topics=names("orders"),
                include_cluster_authorized_operations=True,
                include_topic_authorized_operations=True,
            )

            assert quiet.cluster_authorized_operations == NOT_TOLD
            assert quiet.topics[0].topic_authorized_operations == NOT_TOLD
            assert told.cluster_authorized_operations == CLUSTER_OPERATIONS
            assert told.topics[0].topic_authorized_operations == TOPIC_OPERATIONS

    run(scenario())


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_names_cluster_controller_and_brokers(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, broker_rack="cellar") as broker:
            answer = await broker.ask(
                ApiKey.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True, endpoint_type=1
            )
            [node] = answer.brokers

            assert answer.cluster_id == broker.broker.services.cluster_id
            assert answer.controller_id == NODE_ID
            assert (node.broker_id, node.rack) == (NODE_ID, "cellar")
            assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS

    run(scenario())


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.mismatched_endpoint_type), (3, ErrorCode.unsupported_endpoint_type)]
)
def test_describe_cluster_for_other_endpoints_is_refused(tmp_path: Path, endpoint_type: int, code: ErrorCode) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            answer = await broker.ask(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=endpoint_type)

            assert answer.error_code is code

    run(scenario())


def test_describe_topic_partitions_goes_on_where_the_cursor_says(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("a", 2)
            await broker.create("b", 2)
            seen = []
            cursor = None
            while True:
                page = await broker.ask(
                    ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=3, cursor=cursor
                )
                seen.append([(topic.name, one.partition_index) for topic in page.topics for one in topic.partitions])
                if page.next_cursor is None:
                    break
                cursor = {
                    "topic_name": page.next_cursor.topic_name,
                    "partition_index": page.next_cursor.partition_index,
                }

            assert seen == [[("a", 0), ("a", 1), ("b", 0)], [("b", 1)]]

    run(scenario())


def test_describe_topic_partitions_answers_for_bad_and_unknown_names(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            page = await broker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=names("nope", "bad name"))

            assert {topic.name: topic.error_code for topic in page.topics} == {
                "nope": ErrorCode.unknown_topic_or_partition,
                "bad name": ErrorCode.invalid_topic_exception,
            }

    run(scenario())


@pytest.mark.parametrize(("topic", "index"), [("other", 0), ("a", -1)])
def test_describe_topic_partitions_refuses_cursor_outside_of_the_request(
    tmp_path: Path, topic: str, index: int
) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("a")
            page = await broker.ask(
                ApiKey.DESCRIBE_TOPIC_PARTITIONS,
                0,
                topics=names("a"),
                cursor={"topic_name": topic, "partition_index": index},
            )

            assert [one.error_code for one in page.topics] == [ErrorCode.invalid_request]

    run(scenario())
