"""The setting tables against what Apache Kafka prints of its own: names, types, defaults, rules, modes."""

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest

from barnabas.base.settings import Between, Dynamic, ListOf, OneOf, Setting, ThrottledReplicas
from barnabas.storage.setting_tables import LOG_SETTINGS, TOPIC_SETTINGS
from tests.support.kafka import KafkaUnavailable, run_tool

pytestmark = pytest.mark.kafka

UPDATE_MODES = {
    Dynamic.NO: "read-only",
    Dynamic.PER_BROKER: "per-broker",
    Dynamic.YES: "cluster-wide",
}
LEFT_OUT_BY_KAFKA = {"log.initial.task.delay.ms", "producer.id.expiration.check.interval.ms"}
"""Kafka has them and marks them internal, so its listing does not show them."""
STRICTER_THAN_KAFKA = {
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "log.flush.interval.ms",
    "log.flush.scheduler.interval.ms",
    # Kafka fails when it makes such an index.
    "log.index.size.max.bytes",
    "segment.index.bytes",
    # Kafka takes any number of threads, and fails when the system has no more.
    "num.recovery.threads.per.data.dir",
    # Kafka checks these two, and only says so when one is refused.
    "log.roll.jitter.ms",
    "log.roll.ms",
}


class Listed(NamedTuple):
    type: str
    default: str
    valid: str
    server_default: str
    update_mode: str


def listing(main_class: str, run: Callable[[str], str] = run_tool) -> dict[str, Listed]:
    try:
        html = run(main_class)
    except KafkaUnavailable as missing:
        pytest.skip(str(missing))
    rows = {}
    for block in html.split("<h4>")[1:]:
        name = re.search(r'<a id="([^"]+)">', block)
        assert name is not None
        cells = dict(re.findall(r"<tr><th>([^:<]+):</th><td>(.*?)</td></tr>", block))
        rows[name[1]] = Listed(
            cells["Type"],
            re.sub(r" \(.*\)$", "", cells["Default"]).replace('""', ""),
            cells.get("Valid Values", ""),
            cells.get("Server Default Property", ""),
            cells.get("Update Mode", ""),
        )
    return rows


@pytest.fixture(scope="module")
def kafka_topic_settings() -> dict[str, Listed]:
    return listing("org.apache.kafka.storage.internals.log.LogConfig")


@pytest.fixture(scope="module")
def kafka_broker_settings() -> dict[str, Listed]:
    return listing("kafka.server.KafkaConfig")


def default_text(setting: Setting) -> str:
    return "null" if setting.default is None else setting.format(setting.default)


def rule_text(setting: Setting) -> str:
    """The setting's rule as Kafka prints one."""
    match setting.validator:
        case None:
            return ""
        case Between(low, high, also):
            upper = "" if high is None else f",{high}"
            return f"[{low},...{upper}]" + "".join(f" or {single}" for single in also)
        case OneOf(words):
            return f"[{', '.join(words)}]"
        case ListOf(pattern) if setting.name.endswith("cleanup.policy"):
            return f"[{', '.join(pattern.pattern.split('|'))}]"
        case ThrottledReplicas():
            return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        case _:
            return ""  # Kafka's listing has no words for these rules


def test_topic_settings_are_kafkas(kafka_topic_settings) -> None:
    ours = {setting.name for setting in TOPIC_SETTINGS if not setting.is_internal}
    assert ours == set(kafka_topic_settings)


def test_topic_settings_have_kafkas_types_defaults_and_synonyms(kafka_topic_settings) -> None:
    for name, theirs in kafka_topic_settings.items():
        ours = TOPIC_SETTINGS[name]
        server_default = ours.synonyms[0].name if ours.synonyms else "null"
        assert (ours.type.name.lower(), default_text(ours), server_default) == (
            theirs.type,
            theirs.default,
            theirs.server_default,
        ), name


def test_broker_has_every_log_setting_of_kafka(kafka_broker_settings) -> None:
    kafka_log_settings = {name for name in kafka_broker_settings if name.startswith("log.")}
    assert kafka_log_settings <= {setting.name for setting in LOG_SETTINGS}


def test_broker_settings_have_kafkas_types_defaults_and_update_modes(kafka_broker_settings) -> None:
    for ours in LOG_SETTINGS:
        if ours.name in LEFT_OUT_BY_KAFKA:
            assert ours.name not in kafka_broker_settings
            continue
        theirs = kafka_broker_settings[ours.name]
        assert (ours.type.name.lower(), default_text(ours), UPDATE_MODES[ours.dynamic]) == (
            theirs.type,
            theirs.default,
            theirs.update_mode,
        ), ours.name


def test_rules_are_kafkas_unless_named_as_stricter(kafka_topic_settings, kafka_broker_settings) -> None:
    for table, listed in ((TOPIC_SETTINGS, kafka_topic_settings), (LOG_SETTINGS, kafka_broker_settings)):
        for ours in table:
            if ours.name in listed:
                is_same = rule_text(ours) == listed[ours.name].valid
                assert is_same != (ours.name in STRICTER_THAN_KAFKA), ours.name
