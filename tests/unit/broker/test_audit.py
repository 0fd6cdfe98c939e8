"""What the log says of changes that clients make: what, who, and from where."""

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from barnabas.base.logs import JsonFormatter, TextFormatter
from barnabas.broker.audit import settings_text
from barnabas.broker.setting_table import SERVER_SETTINGS
from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import NODE_ID, ServedBroker, served_broker
from tests.support.network import run

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE = 0, 1
WHO = {"principal": "User:ANONYMOUS", "client_id": "test", "host": "127.0.0.1"}
ONE = {"offsets_topic_replication_factor": "1", "offsets_topic_num_partitions": "1"}


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def lines(caplog: pytest.LogCaptureFixture, word: str) -> list[dict[str, Any]]:
    """The JSON of every line whose message begins with this word."""
    found = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    return [{**line, "time": ""} for line in found if line["message"].startswith(word)]


def line(message: str, level: str = "INFO", logger: str = "barnabas.broker.audit", **ids: object) -> Mapping[str, Any]:
    return {"time": "", "level": level, "logger": logger, "message": message, **ids, **WHO}


async def change(broker: ServedBroker, kind: int, name: str, *changes: tuple[str, int, str | None]) -> ErrorCode:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    answer = await broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False)
    return answer.responses[0].error_code  # type: ignore[no-any-return]


def test_changes_of_topics_are_told_with_who_made_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders", 2)
            await broker.create("bills")
            grown = [{"name": "orders", "count": 3, "assignments": None}]
            for is_trial in (True, False):
                await broker.ask(ApiKey.CREATE_PARTITIONS, 3, topics=grown, timeout_ms=1000, validate_only=is_trial)
            await broker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["orders", "nowhere"], timeout_ms=1000)

    run(scenario())
    assert lines(caplog, "created topic") == [
        line("created topic 'orders' with 2 partitions", topic="orders", partitions=2),
        line("created topic 'bills' with 1 partition", topic="bills", partitions=1),
    ]
    assert lines(caplog, "changed topic") == [
        line("changed topic 'orders' to 3 partitions", topic="orders", partitions=3)
    ]
    assert lines(caplog, "deleted topic") == [line("deleted topic 'orders'", topic="orders")]
    storage = [(one["topic"], one["partition"]) for one in lines(caplog, "orders-")]
    assert sorted(storage) == [("orders", index) for index in range(3)]


def test_changes_of_settings_are_told_with_who_made_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders", retention_ms="1000")
            caplog.clear()
            await change(broker, TOPIC, "orders", ("retention.ms", DELETE, None), ("segment.ms", SET, "77"))
            await change(broker, TOPIC, "orders", ("segment.ms", SET, "77"))
            await change(broker, TOPIC, "orders", ("segment.ms", SET, "soon"))
            await change(broker, BROKER, "", ("log.retention.ms", SET, "5000"))
            await change(broker, BROKER, str(NODE_ID), ("max.connections", SET, "50"))
            await change(broker, LOGGER, str(NODE_ID), ("barnabas.storage", SET, "DEBUG"))
            await change(broker, LOGGER, str(NODE_ID), ("barnabas.storage", DELETE, None))

    run(scenario())
    assert lines(caplog, "changed") == [
        line("changed topic 'orders': segment.ms=77, retention.ms unset", topic="orders"),
        line("changed all brokers: log.retention.ms=5000", broker=None),
        line(f"changed broker {NODE_ID}: max.connections=50", broker=NODE_ID),
        line("changed the level of logger barnabas.storage to DEBUG"),
        line("changed the level of logger barnabas.storage to its default"),
    ]


def test_topic_that_is_created_because_a_client_asks_is_told_with_who_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, default_replication_factor="2") as broker:
            for _ in range(3):
                await ask_for(broker, "refused")
                await asyncio.sleep(0.01)
        async with served_broker(tmp_path) as broker:
            await ask_for(broker, "letters")
            await broker.broker.replicas.wait_for(lambda image: "letters" in image.topics)

    async def ask_for(broker: ServedBroker, name: str) -> None:
        await broker.ask(ApiKey.METADATA, 12, topics=[{"name": name, "topic_id": None}])

    run(scenario())
    told = {"topic": "letters", "partitions": 1, "logger": "barnabas.broker.auto_creation"}
    assert lines(caplog, "created topic") == [
        line("created topic 'letters' with 1 partition, because a client asked for it", **told)  # type: ignore[arg-type]
    ]
    [refused] = lines(caplog, "cannot create topic 'refused', which a client asked for: ")
    assert {**refused, **WHO} == refused


def test_group_that_is_deleted_and_the_end_of_all_groups_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await broker.find_coordinator()
            join = {
                "group_id": "g",
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 10_000,
                "member_id": "",
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
            }
            await broker.ask(ApiKey.JOIN_GROUP, 4, **join)  # a group is there from the first join on
            deleted = await broker.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g", "nobody"])
            assert [one.error_code for one in deleted.results] == [ErrorCode.none, ErrorCode.group_id_not_found]
            await broker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["__consumer_offsets"], timeout_ms=1000)

    run(scenario())
    assert lines(caplog, "deleted group") == [line("deleted group 'g'", group="g")]
    assert lines(caplog, "deleted topic") == [
        line(
            "deleted topic '__consumer_offsets', and with it every group and its committed offsets",
            "WARNING",
            topic="__consumer_offsets",
        )
    ]


def test_what_a_client_says_of_itself_is_bounded_and_stays_on_its_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            broker.client_id = "x\n12:00:00 INFO deleted topic 'orders'" + "y" * 30_000
            await broker.create("orders")

    run(scenario())
    [record] = [record for record in caplog.records if record.getMessage().startswith("created topic")]
    text = TextFormatter(is_terminal=False, has_colour=False).format(record)
    assert text.isprintable()
    assert len(text) < 600


def test_settings_are_told_by_what_became_of_them() -> None:
    before = {"a": "1", "b": "2", "c": "3"}
    assert settings_text(before, {"a": "1", "b": "7", "d": "x" * 300}, SERVER_SETTINGS) == (
        f"b=7, d={'x' * 200}..., c unset"
    )
    assert settings_text(before, before, SERVER_SETTINGS) == ""
