"""Settings: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

A resource that AlterConfigs has twice is not among the cases: Kafka never answers it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.wire.apis import ApiKey
from tests.support.side_by_side import Pair, Side, Values, versions

PLAIN = "plain-settings"
CHANGED = "changed-settings"
UNKNOWN = "no-such-topic"

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

BROKER_SETTINGS = (
    "log.retention.ms",
    "log.retention.hours",
    "log.segment.bytes",
    "message.max.bytes",
    "min.insync.replicas",
    "compression.type",
    "num.partitions",
    "auto.create.topics.enable",
    "log.cleaner.threads",
    "num.io.threads",
    "max.connections",
    "max.connections.per.ip",
    "delete.topic.enable",
    "broker.rack",
)


def _fill(side: Side) -> None:
    if PLAIN not in side.topic_ids:
        side.create_topic(PLAIN)
        side.create_topic(
            CHANGED,
            configs={"cleanup.policy": "compact,delete", "retention.ms": "1000000", "compression.type": "zstd"},
        )


def _constant(values: Values) -> Callable[[Side], Values]:
    return lambda side: values


# --- reading ----------------------------------------------------------------------------------------------


def _resource(kind: int, name: str, keys: Sequence[str] | None = None) -> Values:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}


RESOURCES = {
    "a topic": _resource(TOPIC, PLAIN),
    "a topic with settings": _resource(TOPIC, CHANGED),
    "some settings of a topic": _resource(TOPIC, CHANGED, ["retention.ms", "segment.bytes", "no.such.setting"]),
    "no settings of a topic": _resource(TOPIC, CHANGED, []),
    "unknown topic": _resource(TOPIC, UNKNOWN),
    "name that no topic can have": _resource(TOPIC, "no topic!"),
    "no name for a topic": _resource(TOPIC, ""),
    "some settings of the broker": _resource(BROKER, "1", BROKER_SETTINGS),
    "unknown broker": _resource(BROKER, "9"),
    "name for a broker": _resource(BROKER, "one"),
    "all brokers": _resource(BROKER, ""),
    "unknown broker's loggers": _resource(LOGGER, "9"),
    "no broker's loggers": _resource(LOGGER, ""),
    "unknown type": _resource(1, "a"),
    "type that does not exist": _resource(77, "a"),
}


def tell_describe_configs(pair: Pair) -> None:
    pair.each(_fill)
    for version in versions(ApiKey.DESCRIBE_CONFIGS):
        for case, resource in RESOURCES.items():
            for synonyms in (False, True):
                asked = {
                    "resources": [resource],
                    "include_synonyms": synonyms,
                    "include_documentation": synonyms,
                }
                name = f"{case}{', synonyms' if synonyms else ''}"
                pair.compare(name, ApiKey.DESCRIBE_CONFIGS, version, _constant(asked), is_read=True)
        asked = {"resources": [RESOURCES["a topic"], RESOURCES["unknown topic"], RESOURCES["a topic"]]}
        pair.compare("several", ApiKey.DESCRIBE_CONFIGS, version, _constant(asked), is_read=True)


# --- changing ---------------------------------------------------------------------------------------------


def _show(pair: Pair, case: str, topic: str, version: int) -> None:
    """What the change left behind."""
    asked = {"resources": [_resource(TOPIC, topic)], "include_synonyms": False, "include_documentation": False}
    pair.compare(f"{case} ({version}), then", ApiKey.DESCRIBE_CONFIGS, 4, _constant(asked), is_read=True)


def _changes(topic: str) -> dict[str, tuple[int, str, dict[str, str | None]]]:
    return {
        "two settings": (TOPIC, topic, {"retention.ms": "2000000", "segment.bytes": "2000000"}),
        "other settings": (TOPIC, topic, {"retention.ms": "3000000"}),
        "a list": (TOPIC, topic, {"cleanup.policy": "compact, delete"}),
        "no settings": (TOPIC, topic, {}),
        "wrong value": (TOPIC, topic, {"retention.ms": "soon"}),
        "value out of range": (TOPIC, topic, {"segment.bytes": "1"}),
        "value of a list": (TOPIC, topic, {"cleanup.policy": "burn"}),
        "empty value": (TOPIC, topic, {"retention.ms": ""}),
        "unknown setting": (TOPIC, topic, {"no.such.setting": "1"}),
        "null value": (TOPIC, topic, {"retention.ms": None}),
        "good and bad": (TOPIC, topic, {"retention.ms": "5", "no.such.setting": "1"}),
        "unknown topic": (TOPIC, UNKNOWN, {"retention.ms": "5"}),
        "name that no topic can have": (TOPIC, "no topic!", {"retention.ms": "5"}),
        "no name for a topic": (TOPIC, "", {"retention.ms": "5"}),
        "broker": (BROKER, "1", {"log.cleaner.threads": "1"}),
        "broker, none": (BROKER, "1", {}),
        "broker, read only": (BROKER, "1", {"num.partitions": "5", "broker.id": "7"}),
        "broker, wrong value": (BROKER, "1", {"log.cleaner.threads": "many"}),
        "broker, value out of range": (BROKER, "1", {"num.io.threads": "0"}),
        "broker, unknown setting": (BROKER, "1", {"no.such.setting": "1"}),
        "unknown broker": (BROKER, "9", {"log.cleaner.threads": "1"}),
        "name for a broker": (BROKER, "one", {"log.cleaner.threads": "1"}),
        "all brokers": (BROKER, "", {"message.max.bytes": "2000000"}),
        "all brokers, of one alone": (BROKER, "", {"listeners": "PLAINTEXT://127.0.0.1:1"}),
        "all brokers, none": (BROKER, "", {}),
        "unknown type": (1, "a", {"a": "b"}),
        "type that does not exist": (77, "a", {"a": "b"}),
    }


def tell_alter_configs(pair: Pair) -> None:
    for version in versions(ApiKey.ALTER_CONFIGS):
        topic = f"altered-{version}"
        pair.each(lambda side, topic=topic: side.create_topic(topic))  # type: ignore[misc]

        def ask(case: str, *resources: Values, validate_only: bool, version: int = version) -> None:
            asked = {"resources": list(resources), "validate_only": validate_only}
            pair.compare(case, ApiKey.ALTER_CONFIGS, version, _constant(asked))

        for case, (kind, name, settings) in _changes(topic).items():
            configs = [{"name": key, "value": value} for key, value in settings.items()]
            resource = {"resource_type": kind, "resource_name": name, "configs": configs}
            ask(f"{case}, validate only", resource, validate_only=True)
            ask(case, resource, validate_only=False)
            if kind == TOPIC and name == topic:
                _show(pair, case, topic, version)
        ask("no resources", validate_only=False)


def _steps(topic: str) -> dict[str, tuple[int, str, list[tuple[str, int, str | None]]]]:
    """Besides what `_changes` has, all with SET."""
    return {
        "append": (TOPIC, topic, [("cleanup.policy", APPEND, "compact")]),
        "append again": (TOPIC, topic, [("cleanup.policy", APPEND, "compact")]),
        "append something wrong": (TOPIC, topic, [("cleanup.policy", APPEND, "burn")]),
        "subtract": (TOPIC, topic, [("cleanup.policy", SUBTRACT, "compact")]),
        "append to a number": (TOPIC, topic, [("retention.ms", APPEND, "1")]),
        "subtract from an unknown setting": (TOPIC, topic, [("no.such.setting", SUBTRACT, "1")]),
        "delete": (TOPIC, topic, [("retention.ms", DELETE, None)]),
        "delete what is not set": (TOPIC, topic, [("retention.bytes", DELETE, None)]),
        "delete an unknown setting": (TOPIC, topic, [("no.such.setting", DELETE, None)]),
        "a setting twice": (TOPIC, topic, [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]),
        "unknown operation": (TOPIC, topic, [("retention.ms", 9, "1")]),
        "append nothing": (TOPIC, topic, [("cleanup.policy", APPEND, None)]),
        "broker, delete": (BROKER, "1", [("log.cleaner.threads", DELETE, None)]),
        "all brokers, delete": (BROKER, "", [("message.max.bytes", DELETE, None)]),
        "unknown broker's logger": (LOGGER, "9", [("root", SET, "INFO")]),
        "wrong level": (LOGGER, "1", [("root", SET, "SHOUT")]),
        "unknown logger": (LOGGER, "1", [("no.such.logger", SET, "INFO")]),
        "root logger without a level": (LOGGER, "1", [("root", DELETE, None)]),
        "append to a logger": (LOGGER, "1", [("root", APPEND, "INFO")]),
    }


def tell_incremental_alter_configs(pair: Pair) -> None:
    for version in versions(ApiKey.INCREMENTAL_ALTER_CONFIGS):
        topic = f"stepped-{version}"
        pair.each(lambda side, topic=topic: side.create_topic(topic))  # type: ignore[misc]

        def ask(case: str, *resources: Values, validate_only: bool, version: int = version) -> None:
            asked = {"resources": list(resources), "validate_only": validate_only}
            pair.compare(case, ApiKey.INCREMENTAL_ALTER_CONFIGS, version, _constant(asked))

        all_steps: dict[str, tuple[int, str, list[Any]]] = {
            case: (kind, name, [(key, SET, value) for key, value in settings.items()])
            for case, (kind, name, settings) in _changes(topic).items()
        }
        for case, (kind, name, steps) in (all_steps | _steps(topic)).items():
            configs = [{"name": key, "config_operation": step, "value": value} for key, step, value in steps]
            resource = {"resource_type": kind, "resource_name": name, "configs": configs}
            ask(f"{case}, validate only", resource, validate_only=True)
            ask(case, resource, validate_only=False)
            if kind == TOPIC and name == topic:
                _show(pair, case, topic, version)
        twice = {"resource_type": TOPIC, "resource_name": topic, "configs": []}
        ask("a resource twice", twice, twice, validate_only=False)
        ask("no resources", validate_only=False)
