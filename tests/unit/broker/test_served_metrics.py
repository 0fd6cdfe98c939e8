"""What a broker serves after some traffic: which metrics, and whether they are true."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from barnabas.base.metric_table import METRICS
from barnabas.base.metrics import Kind
from barnabas.cli.metrics_page import metrics_page
from barnabas.metadata.image import TopicChanged
from barnabas.records.builder import BatchBuilder
from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import new_topic, served_broker
from tests.support.network import run
from tests.support.replicated import FOLLOWERS, replicated
from tests.support.scraping import Asker, Scraped, asking, scrape

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "metrics.md"
SETTINGS = {
    "metrics_listen": "127.0.0.1:0",
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "3",
    "group_initial_rebalance_delay_ms": "0",
    "auto_create_topics_enable": "false",
}
NOBODY = UUID("00000000-0000-4000-8000-000000000001")


def batch_of(count: int, **fields: Any) -> bytes:
    batch = BatchBuilder(**fields)
    for _ in range(count):
        batch.append(1_700_000_000_000, b"key", b"value")
    return bytes(batch.build())


def produce(records: bytes, topic: str = "orders", partition: int = 0) -> dict[str, Any]:
    data = [{"index": partition, "records": records}]
    return {
        "transactional_id": None,
        "acks": 1,
        "timeout_ms": 1000,
        "topic_data": [{"name": topic, "partition_data": data}],
    }


def fetch(offset: int, topic: str = "orders", *partitions: int) -> dict[str, Any]:
    wanted = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20} for index in partitions or (0,)
    ]
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": wanted}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def commit(group: str, offset: int, topic: str = "orders", partition: int = 0, **member: Any) -> dict[str, Any]:
    committed = [{"partition_index": partition, "committed_offset": offset, "committed_metadata": None}]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": committed}],
        **member,
    }


class Story(NamedTuple):
    """The metrics at the moments of `tell`."""

    idle: Scraped
    busy: Scraped
    after: Scraped
    batch_bytes: int


async def tell(directory: Path) -> Story:
    async with served_broker(directory, **SETTINGS) as served, asking(served) as client:
        idle = await scrape(served)
        await served.create("orders", 2)
        await served.create("durable", flush_messages="1")
        await served.create("gone")
        await make_traffic(client)
        await make_errors(client)
        replicated(served.partition("orders", 1), in_sync=FOLLOWERS[:1])
        served.broker.dispatcher.measures.bugs.of("Metadata").value += 1  # which only a mistake of ours does
        busy = await scrape(served)
        await client.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "gone", "topic_id": None}], timeout_ms=1000)
        return Story(idle, busy, await scrape(served), len(batch_of(3)))


async def make_traffic(client: Asker) -> None:
    """Orders: four batches of three records by the short way, two by the long one, and a retry that changes nothing."""
    await client.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["readers"])
    for version in (9, 9, 9, 8, 8):
        await client.ask(ApiKey.PRODUCE, version, **produce(batch_of(3)))
    for _ in range(2):
        retried = batch_of(3, producer_id=7, producer_epoch=0, base_sequence=0)
        await client.ask(ApiKey.PRODUCE, 9, **produce(retried))
    await client.ask(ApiKey.PRODUCE, 9, **produce(batch_of(1), "durable"))
    await client.ask(ApiKey.PRODUCE, 9, **produce(batch_of(1), "gone"))
    await client.ask(ApiKey.FETCH, 12, **fetch(12))
    await client.ask(ApiKey.FETCH, 4, **fetch(15))
    await client.ask(ApiKey.FETCH, 12, **{**fetch(18), "max_wait_ms": 20})
    await client.ask(ApiKey.OFFSET_COMMIT, 8, **commit("readers", 6))
    await client.ask(ApiKey.OFFSET_COMMIT, 8, **commit("readers", 0, partition=1))


async def make_errors(client: Asker) -> None:
    await client.ask(ApiKey.PRODUCE, 9, **produce(batch_of(1), "nowhere"))
    damaged = bytearray(batch_of(1))
    damaged[-1] ^= 1
    await client.ask(ApiKey.PRODUCE, 9, **produce(bytes(damaged)))  # refused on the short way
    await client.ask(ApiKey.FETCH, 12, **fetch(1_000))
    await client.ask(ApiKey.FETCH, 12, **fetch(1_000, "orders", 0, 1))
    await client.ask(ApiKey.FETCH, 12, **{**fetch(0), "session_id": 5, "session_epoch": 3})
    stranger = {"generation_id_or_member_epoch": 4, "member_id": "nobody"}
    await client.ask(ApiKey.OFFSET_COMMIT, 8, **commit("readers", 1, **stranger))  # on the short way
    await client.ask(ApiKey.OFFSET_COMMIT, 8, **commit("readers", 1, "nowhere"))
    await client.ask(ApiKey.HEARTBEAT, 4, group_id="readers", generation_id=1, member_id="x", group_instance_id=None)
    join = {
        "group_id": "members",
        "session_timeout_ms": 6000,
        "rebalance_timeout_ms": 6000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    await client.ask(ApiKey.JOIN_GROUP, 5, **join)
    sync = {"group_id": "readers", "generation_id": 1, "member_id": "x", "assignments": []}
    await client.ask(ApiKey.SYNC_GROUP, 3, **sync, group_instance_id=None)
    await client.ask(ApiKey.CREATE_TOPICS, 7, topics=[new_topic("orders")], timeout_ms=1000)
    await client.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=["nowhere"])
    unknown = [{"name": name, "topic_id": None} for name in ("nowhere", "nobody")]
    await client.ask(ApiKey.METADATA, 12, topics=unknown, allow_auto_topic_creation=False)
    await client.ask(ApiKey.METADATA, 12, topics=[{"name": "orders", "topic_id": None}])
    await client.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": None, "topic_id": NOBODY}], timeout_ms=1000)
    await client.ask(ApiKey.API_VERSIONS, 3, client_software_name="", client_software_version="")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return run(tell(tmp_path_factory.mktemp("metrics")))


# The page


def test_page_equals_what_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == metrics_page(), "write it anew: make docs"


def test_every_metric_of_the_page_is_served_and_no_other(story: Story) -> None:
    of_process = {name for name in story.busy.names if name.startswith("process_")}
    assert story.busy.names - of_process == {metric.name for metric in METRICS}
    assert all(f"`{name}`" in metrics_page() for name in of_process)


def test_metrics_have_the_labels_and_types_of_the_page(story: Story) -> None:
    types = {line.split()[2]: line.split()[3] for line in story.busy.text.splitlines() if line.startswith("# TYPE")}
    for metric in METRICS:
        assert types[metric.name] == metric.kind.value
        name, also = (f"{metric.name}_bucket", {"le"}) if metric.kind is Kind.HISTOGRAM else (metric.name, set())
        for labels, _ in story.busy.all(name):
            assert set(labels) == {*metric.label_names, *also}, metric.name


def test_what_never_happened_has_no_lines(story: Story) -> None:
    for name in ("barnabas_request_errors_total", "barnabas_flush_seconds", "barnabas_topic_appended_bytes_total"):
        assert name not in story.idle.text
    assert story.idle.value("barnabas_connections_refused_total") == 0
    apis = {labels["api"] for labels, _ in story.busy.all("barnabas_request_seconds_count")}
    assert "Produce" in apis
    assert "ListGroups" not in apis
    headed = [line.split()[2] for line in story.busy.text.splitlines() if line.startswith("# HELP")]
    assert len(headed) == len(set(headed)) == len(story.busy.names)


def test_partitions_of_internal_topics_appear_with_their_first_record(story: Story) -> None:
    shown = [labels for labels, _ in story.busy.all("barnabas_log_bytes")]
    assert [one["partition"] for one in shown if one["topic"] == "__consumer_offsets"] == ["1"]


def test_times_are_finer_than_the_event_loops(story: Story) -> None:
    """uvloop's own time moves in whole milliseconds: every sum would be a whole number of them."""
    sums = [value * 1000 for _, value in story.busy.all("barnabas_request_seconds_sum")]
    assert any(abs(value - round(value)) > 1e-4 for value in sums)


# What went in and out


def test_records_and_bytes_in_are_those_that_were_stored(story: Story) -> None:
    assert story.busy.value("barnabas_topic_appended_records_total", topic="orders") == 18
    assert story.busy.value("barnabas_topic_appended_bytes_total", topic="orders") == 6 * story.batch_bytes
    assert story.busy.value("barnabas_log_bytes", topic="orders", partition="0") == 6 * story.batch_bytes
    assert story.busy.value("barnabas_topic_appended_records_total", topic="durable") == 1


def test_bytes_out_count_on_both_ways(story: Story) -> None:
    """Two batches by the short way, one by the long one."""
    assert story.busy.value("barnabas_topic_sent_bytes_total", topic="orders") == 3 * story.batch_bytes
    assert story.busy.value("barnabas_topic_sent_bytes_total", topic="durable") is None


def test_offsets_of_the_logs_are_shown(story: Story) -> None:
    assert story.busy.value("barnabas_log_start_offset", topic="orders", partition="0") == 0
    assert story.busy.value("barnabas_log_end_offset", topic="orders", partition="0") == 18
    assert story.busy.value("barnabas_log_end_offset", topic="orders", partition="1") == 0


def test_deleted_topic_leaves_no_lines(story: Story) -> None:
    assert 'topic="gone"' in story.busy.text
    assert 'topic="gone"' not in story.after.text
    assert story.after.value("barnabas_topic_appended_records_total", topic="orders") == 18


def test_numbers_of_a_topic_stay_when_a_partition_is_led_elsewhere_for_a_while(tmp_path: Path) -> None:
    """A counter that went down would look like a restart, and like a burst of traffic after it."""

    async def scenario() -> None:
        async with served_broker(tmp_path) as served:
            await served.create("orders", 2)
            for index in (0, 1):
                served.append("orders", [1, 2], index)
            replicas = served.broker.replicas
            topic = replicas.image.topics["orders"]
            moved = [topic.partitions[0]._replace(leader=2, leader_epoch=4), topic.partitions[1]]
            await replicas.apply(replicas.image.apply([TopicChanged(topic.with_partitions(moved))]))
            assert replicas.get("orders", 0) is None
            assert replicas.traffic["orders"].appended_records == 4
            await replicas.apply(replicas.image.apply([TopicChanged(topic)]))
            served.append("orders", [3])
            assert replicas.traffic["orders"].appended_records == 5

    run(scenario())


def test_flushes_are_timed(story: Story) -> None:
    flushes = story.busy.value("barnabas_flush_seconds_count")
    assert flushes is not None
    assert flushes >= 1
    seconds = story.busy.value("barnabas_flush_seconds_sum")
    assert seconds is not None
    assert seconds > 0


# Errors


def errors_of(scraped: Scraped) -> Iterator[tuple[str, str, float]]:
    for labels, value in scraped.all("barnabas_request_errors_total"):
        yield labels["api"], labels["code"], value


def test_errors_are_counted_by_api_and_code(story: Story) -> None:
    assert sorted(errors_of(story.busy)) == [
        ("ApiVersions", "INVALID_REQUEST", 1),
        ("CreateTopics", "TOPIC_ALREADY_EXISTS", 1),
        ("DeleteTopics", "UNKNOWN_TOPIC_ID", 1),
        ("DescribeGroups", "GROUP_ID_NOT_FOUND", 1),
        ("Fetch", "FETCH_SESSION_ID_NOT_FOUND", 1),
        ("Fetch", "OFFSET_OUT_OF_RANGE", 3),
        ("Heartbeat", "UNKNOWN_MEMBER_ID", 1),
        ("JoinGroup", "MEMBER_ID_REQUIRED", 1),
        ("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", 2),
        ("OffsetCommit", "UNKNOWN_MEMBER_ID", 1),
        ("OffsetCommit", "UNKNOWN_TOPIC_OR_PARTITION", 1),
        ("Produce", "CORRUPT_MESSAGE", 1),
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION", 1),
        ("SyncGroup", "UNKNOWN_MEMBER_ID", 1),
    ]


def test_partition_of_which_a_replica_is_not_in_sync(story: Story) -> None:
    """Its followers have fetched nothing, and there is nothing."""
    told = {
        "barnabas_partitions_under_replicated": 1,
        "barnabas_partitions_at_minimum": 0,
        "barnabas_partitions_below_minimum": 0,
        "barnabas_partitions_offline": 0,
        "barnabas_controller_active": 1,
    }
    assert {name: value for name in told for _, value in story.busy.all(name)} == told
    assert [labels["follower"] for labels, _ in story.busy.all("barnabas_replication_lag_records")] == ["2", "3"]
    assert [value for _, value in story.busy.all("barnabas_replication_lag_seconds")] == [0, 0]
