"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

import logging
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from barnabas.broker.setting_table import SERVER_SETTINGS
from barnabas.storage.setting_tables import TOPIC_SETTINGS
from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import NODE_ID, ServedBroker, served_broker
from tests.support.network import run

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
OWN = str(NODE_ID)


async def describe(broker: ServedBroker, kind: int, name: str, *keys: str, version: int = 4, **options: bool) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    answer = await broker.ask(ApiKey.DESCRIBE_CONFIGS, version, resources=[resource], **options)
    return answer.results[0]


async def value_of(broker: ServedBroker, kind: int, name: str, key: str) -> tuple[str | None, int]:
    [entry] = (await describe(broker, kind, name, key)).configs
    return entry.value, entry.config_source


async def change(
    broker: ServedBroker, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> ErrorCode:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    answer = await broker.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[{"resource_type": kind, "resource_name": name, "configs": configs}],
        validate_only=validate_only,
    )
    [response] = answer.responses
    assert (response.error_code is ErrorCode.none) == (response.error_message is None)
    return response.error_code


# -- describing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 5))
def test_topic_is_described_with_every_setting(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders", retention_ms="1000")
            result = await describe(broker, TOPIC, "orders", version=version)
            values = {entry.name: entry.value for entry in result.configs}

            assert set(values) == {setting.name for setting in TOPIC_SETTINGS if not setting.is_internal}
            assert values["retention.ms"] == "1000"
            assert values["cleanup.policy"] == "delete"

    run(scenario())


def test_synonyms_name_every_place_that_could_give_the_value(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, log_retention_hours="2") as broker:
            await broker.create("orders")
            assert await value_of(broker, TOPIC, "orders", "retention.ms") == ("7200000", 5)
            await change(broker, BROKER, "", ("log.retention.ms", SET, "88"))
            await change(broker, BROKER, OWN, ("log.retention.ms", SET, "77"))
            await change(broker, TOPIC, "orders", ("retention.ms", SET, "5000"))
            [entry] = (await describe(broker, TOPIC, "orders", "retention.ms", include_synonyms=True)).configs

            assert (entry.value, entry.config_source) == ("5000", 1)
            assert [(one.name, one.value, one.source) for one in entry.synonyms] == [
                ("retention.ms", "5000", 1),
                ("log.retention.ms", "77", 2),
                ("log.retention.ms", "88", 3),
                ("log.retention.hours", "2", 4),
                ("log.retention.hours", "168", 5),
            ]

    run(scenario())


def test_types_and_documentation_are_told_on_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            [plain] = (await describe(broker, TOPIC, "orders", "retention.ms", "no.such")).configs
            [full] = (await describe(broker, TOPIC, "orders", "retention.ms", include_documentation=True)).configs

            assert (plain.config_type, plain.documentation, plain.synonyms) == (5, None, ())
            assert full.documentation == TOPIC_SETTINGS["retention.ms"].doc

    run(scenario())


def test_broker_is_described_with_every_setting(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            result = await describe(broker, BROKER, OWN)
            entries = {entry.name: entry for entry in result.configs}

            assert set(entries) == {setting.name for setting in SERVER_SETTINGS}
            assert (entries["node.id"].value, entries["broker.id"].value) == (OWN, OWN)
            assert (entries["log.dirs"].value, entries["log.dirs"].config_source) == (str(tmp_path), 4)
            assert (entries["log.retention.ms"].value, entries["log.retention.ms"].read_only) == (None, False)
            assert entries["num.partitions"].read_only

    run(scenario())


def test_defaults_of_all_brokers_are_those_that_were_changed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            assert (await describe(broker, BROKER, "")).configs == ()
            await change(broker, BROKER, "", ("message.max.bytes", SET, "9999"))
            [entry] = (await describe(broker, BROKER, "")).configs

            assert (entry.name, entry.value, entry.config_source) == ("message.max.bytes", "9999", 3)

    run(scenario())


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "", ErrorCode.invalid_topic_exception),
        (BROKER, "9", ErrorCode.invalid_request),
        (BROKER, "x", ErrorCode.invalid_request),
        (LOGGER, "", ErrorCode.invalid_request),
        (LOGGER, "9", ErrorCode.invalid_request),
        (GROUP, "g", ErrorCode.invalid_request),
        (0, "x", ErrorCode.invalid_request),
    ],
)
def test_resource_that_is_not_there_is_not_described(tmp_path: Path, kind: int, name: str, code: ErrorCode) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            result = await describe(broker, kind, name)

            assert (result.error_code, result.configs) == (code, ())

    run(scenario())


def test_type_that_does_not_exist_spoils_the_whole_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            resources = [{"resource_type": BROKER, "resource_name": OWN}, {"resource_type": 99, "resource_name": "x"}]
            answer = await broker.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=resources)

            assert [one.error_code for one in answer.results] == [ErrorCode.invalid_request] * 2

    run(scenario())


# -- changing ------------------------------------------------------------------------------------------------------


def test_changed_topic_setting_is_used_when_the_answer_comes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            assert await change(broker, TOPIC, "orders", ("retention.ms", SET, "5000")) is ErrorCode.none
            assert broker.log("orders").config.retention_ms == 5000
            assert await change(broker, TOPIC, "orders", ("retention.ms", DELETE, None)) is ErrorCode.none

            assert broker.log("orders").config.retention_ms == 604_800_000
            assert await value_of(broker, TOPIC, "orders", "retention.ms") == ("604800000", 5)

    run(scenario())


def test_changed_broker_setting_is_used_by_topics_that_have_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            await broker.create("own", max_message_bytes="5555")
            assert await change(broker, BROKER, "", ("message.max.bytes", SET, "7777")) is ErrorCode.none
            assert broker.log("orders").config.max_message_bytes == 7777
            assert await change(broker, BROKER, OWN, ("message.max.bytes", SET, "8888")) is ErrorCode.none

            assert broker.log("orders").config.max_message_bytes == 8888
            assert broker.log("own").config.max_message_bytes == 5555

    run(scenario())


def test_lists_grow_and_shrink_from_the_default_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            await change(broker, TOPIC, "orders", ("cleanup.policy", APPEND, "compact"))
            assert await value_of(broker, TOPIC, "orders", "cleanup.policy") == ("delete,compact", 1)
            await change(broker, TOPIC, "orders", ("cleanup.policy", APPEND, "compact"))
            assert await value_of(broker, TOPIC, "orders", "cleanup.policy") == ("delete,compact", 1)
            await change(broker, TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete"))

            assert await value_of(broker, TOPIC, "orders", "cleanup.policy") == ("compact", 1)

    run(scenario())


def test_validate_only_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            good = await change(broker, TOPIC, "orders", ("retention.ms", SET, "5"), validate_only=True)
            bad = await change(broker, TOPIC, "orders", ("retention.ms", SET, "x"), validate_only=True)

            assert (good, bad) == (ErrorCode.none, ErrorCode.invalid_config)
            assert await value_of(broker, TOPIC, "orders", "retention.ms") == ("604800000", 5)

    run(scenario())


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code"),
    [
        (TOPIC, "nope", [("retention.ms", SET, "5")], ErrorCode.unknown_topic_or_partition),
        (TOPIC, "bad name", [("retention.ms", SET, "5")], ErrorCode.invalid_topic_exception),
        (TOPIC, "", [("retention.ms", SET, "5")], ErrorCode.invalid_request),
        (TOPIC, "orders", [("nope", SET, "5")], ErrorCode.invalid_config),
        (TOPIC, "orders", [("retention.ms", SET, "x")], ErrorCode.invalid_config),
        (TOPIC, "orders", [("retention.ms", SET, None)], ErrorCode.invalid_request),
        (TOPIC, "orders", [("retention.ms", APPEND, "5")], ErrorCode.invalid_config),
        (TOPIC, "orders", [("cleanup.policy", APPEND, "nope")], ErrorCode.invalid_config),
        (TOPIC, "orders", [("retention.ms", SET, "5"), ("retention.ms", SET, "6")], ErrorCode.invalid_request),
        (TOPIC, "orders", [("retention.ms", SET, "5"), ("segment.ms", SET, "x")], ErrorCode.invalid_config),
        (BROKER, "9", [("log.retention.ms", SET, "5")], ErrorCode.invalid_request),
        (BROKER, OWN, [("node.id", SET, "5")], ErrorCode.invalid_request),
        (BROKER, OWN, [("log.cleaner.threads", SET, "x")], ErrorCode.invalid_request),
        (BROKER, OWN, [("log.cleaner.dedupe.buffer.size", SET, "5")], ErrorCode.invalid_request),
        (BROKER, OWN, [("ssl.keystore.location", SET, "5")], ErrorCode.invalid_request),
        (BROKER, "", [("cordoned.log.dirs", SET, "*")], ErrorCode.invalid_request),
        (CLIENT_METRICS, "x", [("interval.ms", SET, "5")], ErrorCode.invalid_request),
        (LOGGER, OWN, [("no.such.logger", SET, "INFO")], ErrorCode.invalid_config),
        (LOGGER, OWN, [("root", SET, "LOUD")], ErrorCode.invalid_config),
        (LOGGER, OWN, [("root", DELETE, None)], ErrorCode.invalid_request),
        (LOGGER, OWN, [("root", APPEND, "INFO")], ErrorCode.invalid_request),
    ],
)
def test_change_that_kafka_refuses_is_refused_as_a_whole(
    tmp_path: Path, kind: int, name: str, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")

            assert await change(broker, kind, name, *changes) is code
            assert broker.broker.replicas.image.topic_configs == {}
            assert broker.broker.replicas.image.broker_configs == {}

    run(scenario())


def test_deleting_a_setting_that_was_never_set_is_fine(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")

            assert await change(broker, TOPIC, "orders", ("nope", DELETE, None)) is ErrorCode.none

    run(scenario())


def test_resource_that_comes_twice_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            configs = [{"name": "retention.ms", "config_operation": SET, "value": "5"}]
            twice = [{"resource_type": TOPIC, "resource_name": "orders", "configs": configs}] * 2
            answer = await broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=twice, validate_only=False)

            assert [one.error_code for one in answer.responses] == [ErrorCode.invalid_request] * 2

    run(scenario())


def test_level_of_a_logger_is_changed_and_forgotten(tmp_path: Path) -> None:
    name = "barnabas.broker.services"
    before = logging.getLogger(name).level

    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            assert await change(broker, LOGGER, OWN, (name, SET, "ERROR")) is ErrorCode.none
            assert await value_of(broker, LOGGER, OWN, name) == ("ERROR", 6)
            assert await change(broker, LOGGER, OWN, (name, DELETE, None)) is ErrorCode.none
            assert logging.getLogger(name).level == logging.NOTSET

    try:
        run(scenario())
    finally:
        logging.getLogger(name).setLevel(before)


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_settings(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders", retention_ms="1000")

            async def replace(*configs: tuple[str, str | None]) -> ErrorCode:
                given = [{"name": key, "value": value} for key, value in configs]
                resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": given}
                answer = await broker.ask(ApiKey.ALTER_CONFIGS, version, resources=[resource], validate_only=False)
                code: ErrorCode = answer.responses[0].error_code
                return code

            assert await replace(("segment.ms", "9999")) is ErrorCode.none
            assert broker.broker.replicas.image.configs_of_topic("orders") == {"segment.ms": "9999"}
            assert await replace(("segment.ms", None)) is ErrorCode.invalid_request
            assert await replace(("nope", "1")) is ErrorCode.invalid_config
            assert await replace() is ErrorCode.none
            assert broker.log("orders").config.segment_ms == 604_800_000

    run(scenario())


# -- listing -------------------------------------------------------------------------------------------------------


def test_config_resources_are_listed_by_type(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")

            async def listed(version: int, *types: int) -> tuple[ErrorCode, set[tuple[int, str]]]:
                answer = await broker.ask(ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=types)
                return answer.error_code, {
                    (getattr(one, "resource_type", CLIENT_METRICS), one.resource_name)
                    for one in answer.config_resources
                }

            everything = {(TOPIC, "orders"), (BROKER, OWN), (LOGGER, OWN)}
            assert await listed(1) == (ErrorCode.none, everything)
            assert await listed(1, TOPIC) == (ErrorCode.none, {(TOPIC, "orders")})
            assert await listed(1, GROUP) == (ErrorCode.none, set())
            assert await listed(1, 99) == (ErrorCode.unsupported_version, set())
            assert await listed(0) == (ErrorCode.none, set())

    run(scenario())


def test_changed_setting_of_the_broker_takes_effect_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as served:
            changes = [
                ("max.connections", SET, "17"),
                ("log.cleaner.threads", SET, "2"),
                ("log.retention.ms", SET, "99"),
            ]
            await served.create("orders")
            assert await change(served, BROKER, OWN, *changes) is ErrorCode.none

            broker = served.broker
            assert broker.server_options.connections_max == 17
            assert broker.logs.config.log_cleaner_threads == 2
            assert served.log("orders").config.retention_ms == 99

    run(scenario())


# -- what would shut everybody out ---------------------------------------------------------------------------------


def test_client_cannot_shut_itself_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            for name in ("", OWN):
                for change_of_limits in (
                    [("max.connections", SET, "0")],
                    [("max.connections.per.ip", SET, "0")],
                    [("max.connections.per.ip.overrides", SET, "127.0.0.1:0")],
                    [("max.connections.per.ip", SET, "0"), ("max.connections.per.ip.overrides", SET, "10.0.0.1:5")],
                ):
                    for validate_only in (True, False):
                        code = await change(broker, BROKER, name, *change_of_limits, validate_only=validate_only)
                        assert code is ErrorCode.invalid_config, change_of_limits
            answer = await broker.ask(
                ApiKey.ALTER_CONFIGS,
                2,
                resources=[
                    {
                        "resource_type": BROKER,
                        "resource_name": OWN,
                        "configs": [{"name": "max.connections", "value": "0"}],
                    }
                ],
                validate_only=False,
            )
            assert answer.responses[0].error_code is ErrorCode.invalid_config
            assert broker.broker.services.image.broker_configs == {}

            others_alone = [
                ("max.connections.per.ip", SET, "0"),
                ("max.connections.per.ip.overrides", SET, "127.0.0.1:5"),
            ]
            assert await change(broker, BROKER, OWN, *others_alone) is ErrorCode.none
            taken_away = ("max.connections.per.ip.overrides", DELETE, None)
            assert await change(broker, BROKER, OWN, taken_away) is ErrorCode.invalid_config
            assert broker.broker.server_options.connections_per_host_overrides == {"127.0.0.1": 5}

    run(scenario())
