"""The setting tables: parsing, refusals, the configurations made of them, and the page written from them."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from barnabas.base.errors import InvalidSetting
from barnabas.base.settings import (
    LONG_MAX,
    Between,
    Dynamic,
    Setting,
    SettingType,
    Unit,
    parse_assignment,
    with_unit,
)
from barnabas.base.texts import shortened
from barnabas.cli.settings_page import settings_page
from barnabas.records.batch import Codec
from barnabas.storage.setting_tables import LOG_SETTINGS, TOPIC_SETTINGS
from barnabas.storage.settings import LogConfig, LogManagerConfig, field_name

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"


def test_settings_page_equals_what_the_tables_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page(), (
        "write it anew: python -m barnabas.cli.settings_page > docs/settings.md"
    )


@pytest.mark.parametrize("table", [TOPIC_SETTINGS, LOG_SETTINGS], ids=["topic", "broker"])
def test_every_default_that_is_set_passes_its_own_validation(table) -> None:
    for setting in table:
        if setting.default is not None:
            assert setting.parse(setting.format(setting.default)) == setting.default


def test_every_log_config_field_has_a_setting_and_every_supported_setting_a_field() -> None:
    config_fields = {field.name for field in fields(LogConfig) if field.init}
    supported = {field_name(row.name) for row in TOPIC_SETTINGS if not row.unsupported and not row.is_internal}
    assert config_fields == supported


def test_every_log_manager_field_has_a_setting_and_every_other_broker_setting_is_a_topic_default() -> None:
    manager_fields = {field.name for field in fields(LogManagerConfig)}
    topic_defaults = {synonym.name for row in TOPIC_SETTINGS for synonym in row.synonyms}
    assert topic_defaults <= {row.name for row in LOG_SETTINGS}
    own = {field_name(row.name) for row in LOG_SETTINGS if row.name not in topic_defaults and not row.unsupported}
    # The one-directory spelling becomes log_dirs; the flush scheduler's interval is both.
    assert manager_fields == (own - {"log_dir"}) | {"log_flush_scheduler_interval_ms"}


def test_log_config_without_arguments_equals_the_one_made_from_no_settings() -> None:
    assert LogConfig.from_settings({}) == LogConfig()
    assert LogManagerConfig.from_settings({}) == LogManagerConfig()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment.bytes", " +10000000 ", 10_000_000),
        ("retention.bytes", "-5", -5),
        ("retention.ms", "-1", -1),
        ("preallocate", "TRUE", True),
        ("min.cleanable.dirty.ratio", ".25", 0.25),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("compression.type", " gzip ", "gzip"),
        ("compression.gzip.level", "-1", -1),
        ("cleanup.policy", "", ()),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", "compact,compact", ("compact",)),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
        ("local.retention.ms", "-2", -2),
    ],
)
def test_topic_setting_with_a_text_that_kafka_accepts_gives_its_value(name, text, value) -> None:
    assert TOPIC_SETTINGS[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("segment.bytes", "100", "from 1048576 (1 MiB) to 2147483647"),
        ("segment.bytes", "3000000000", "from 1048576 (1 MiB) to 2147483647"),
        ("segment.bytes", "1_000_000_0", "a whole number"),
        ("segment.bytes", "0x1000000", "a whole number"),
        ("segment.bytes", "١٢٣٤٥٦٧٨٩", "a whole number"),
        ("segment.bytes", "9" * 10_000, "a whole number"),
        ("segment.bytes", "", "a whole number"),
        ("retention.ms", "-2", "at least -1"),
        ("flush.messages", "0", "at least 1"),
        ("preallocate", "yes", "true or false"),
        ("min.cleanable.dirty.ratio", "1.5", "from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "a number"),
        ("min.cleanable.dirty.ratio", "inf", "a number"),
        ("min.cleanable.dirty.ratio", "1e999", "a number"),
        ("compression.type", "GZIP", "one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "from 1 to 9, or -1"),
        ("cleanup.policy", "none", "any of compact, delete"),
        ("cleanup.policy", "delete,", "any of compact, delete"),
        ("message.timestamp.type", "logappendtime", "one of CreateTime, LogAppendTime"),
        ("leader.replication.throttled.replicas", "*,0:1", "PARTITION:BROKER"),
        ("leader.replication.throttled.replicas", "0:a", "PARTITION:BROKER"),
    ],
)
def test_topic_setting_with_a_wrong_text_is_refused_with_what_is_allowed(name, text, allowed) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(allowed)) as refusal:
        TOPIC_SETTINGS.parse({name: text})
    assert str(refusal.value).startswith(f"{name}={shortened(text)} is not allowed")


def test_value_that_is_too_long_to_tell_is_refused() -> None:
    longest = ",".join(["0:1"] * 8192)
    TOPIC_SETTINGS.parse({"leader.replication.throttled.replicas": longest})
    for text in (longest + ",0:1", "ä" * 16_384, "\udcff" * 40_000):
        with pytest.raises(InvalidSetting, match="too long"):
            TOPIC_SETTINGS.parse({"leader.replication.throttled.replicas": text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.cleaner.threads", "0"),
        ("log.cleaner.io.max.bytes.per.second", "0"),
        ("log.cleaner.io.buffer.load.factor", "0"),
        ("log.cleaner.io.buffer.load.factor", "1.1"),
        ("log.retention.ms", "0"),
        ("log.roll.ms", "0"),
        ("log.dirs", ""),
        ("log.dirs", "/a,,/b"),
    ],
)
def test_broker_setting_that_would_break_the_log_is_refused(name, text) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(f"{name}={text} is not allowed")):
        LOG_SETTINGS.parse({name: text})


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("segment.byte", "segment.bytes"),
        ("retention.msec", "retention.ms"),
        ("log.retention.hours", "retention.ms"),
        ("message.max.bytes", "max.message.bytes"),
    ],
)
def test_unknown_topic_setting_is_refused_with_the_nearest_right_name(name, near) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(f"no topic setting {name}; did you mean {near}?")):
        LogConfig.from_settings({name: "1"})


def test_unknown_setting_that_resembles_none_is_refused_without_a_guess() -> None:
    with pytest.raises(InvalidSetting) as refusal:
        LOG_SETTINGS["zzz"]
    assert str(refusal.value) == "there is no broker setting zzz"


@pytest.mark.parametrize("name", ["remote.storage.enable", "remote.log.copy.disable"])
def test_tiered_storage_setting_at_its_default_is_accepted_and_otherwise_refused(name) -> None:
    assert LogConfig.from_settings({name: "false"}) == LogConfig()
    with pytest.raises(InvalidSetting, match="Barnabas has no tiered storage; leave it out or set it to false"):
        LogConfig.from_settings({name: "true"})


def test_password_that_is_refused_is_not_shown() -> None:
    password = Setting("key.password", SettingType.PASSWORD, "", "", "", validator=_Nothing())
    assert password.is_sensitive
    with pytest.raises(InvalidSetting) as refusal:
        password.parse("secret")
    assert "secret" not in str(refusal.value)


class _Nothing:
    def allows(self, value: object) -> bool:
        return False

    def describe(self, unit: Unit) -> str:
        return "another one"


@pytest.mark.parametrize(
    ("broker", "field", "value"),
    [
        ({"log.segment.bytes": "2097152"}, "segment_bytes", 2_097_152),
        ({"log.roll.hours": "1"}, "segment_ms", 3_600_000),
        ({"log.roll.hours": "7", "log.roll.ms": "5"}, "segment_ms", 5),
        ({"log.roll.jitter.hours": "2"}, "segment_jitter_ms", 7_200_000),
        ({"log.retention.minutes": "5"}, "retention_ms", 300_000),
        ({"log.retention.minutes": "5", "log.retention.ms": "77"}, "retention_ms", 77),
        ({"log.retention.hours": "-3"}, "retention_ms", -1),
        ({"log.retention.ms": "-7"}, "retention_ms", -1),
        ({"log.flush.scheduler.interval.ms": "500"}, "flush_ms", 500),
        ({"log.flush.scheduler.interval.ms": "500", "log.flush.interval.ms": "9"}, "flush_ms", 9),
        ({"message.max.bytes": "5"}, "max_message_bytes", 5),
        ({"log.cleanup.policy": ""}, "cleanup_policy", frozenset()),
        ({"log.cleaner.min.cleanable.ratio": "0.1"}, "min_cleanable_dirty_ratio", 0.1),
    ],
)
def test_broker_setting_gives_the_topic_its_default_in_the_topics_unit(broker, field, value) -> None:
    assert getattr(LogConfig.from_settings({}, broker), field) == value


def test_topic_setting_goes_before_the_brokers() -> None:
    config = LogConfig.from_settings({"retention.ms": "9"}, {"log.retention.ms": "77", "log.segment.bytes": "2097152"})
    assert (config.retention_ms, config.segment_bytes) == (9, 2_097_152)


def test_topic_without_settings_shares_the_brokers_configuration() -> None:
    defaults = LogConfig.broker_defaults({"log.retention.ms": "77"})
    assert defaults.with_topic_settings({}) is defaults


def test_internal_segment_size_replaces_the_public_one() -> None:
    config = LogConfig.from_settings({"internal.segment.bytes": "100", "segment.bytes": "2097152"})
    assert config.segment_bytes == 100


@pytest.mark.parametrize(
    ("topic", "broker"),
    [
        ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, {}),
        ({"min.compaction.lag.ms": "10"}, {"log.cleaner.max.compaction.lag.ms": "5"}),
        ({}, {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "5"}),
    ],
)
def test_compaction_lags_that_contradict_each_other_are_refused(topic, broker) -> None:
    with pytest.raises(InvalidSetting, match=r"min\.compaction\.lag\.ms=10 must not be more than .*lag\.ms=5"):
        LogConfig.from_settings(topic, broker)


def test_compacted_log_rolls_at_the_earlier_of_both_ages() -> None:
    lagging = LogConfig(segment_ms=100, max_compaction_lag_ms=30)
    assert lagging.roll_after_ms == 100
    compacted = LogConfig.from_settings({"cleanup.policy": "compact", "max.compaction.lag.ms": "30"})
    assert (compacted.roll_after_ms, compacted.is_compacted, compacted.is_deleted) == (30, True, False)


def test_roll_jitter_never_exceeds_the_segments_age() -> None:
    assert LogConfig(segment_ms=100, segment_jitter_ms=700).roll_jitter_ms_max == 100


def test_compression_type_names_the_stored_codec_and_its_level() -> None:
    assert LogConfig().stored_codec is None
    assert LogConfig(compression_type="uncompressed").stored_codec is Codec.NONE
    config = LogConfig.from_settings({"compression.type": "zstd", "compression.zstd.level": "-7"})
    assert config.stored_codec is Codec.ZSTD
    assert [config.compression_level(codec) for codec in Codec] == [None, None, None, 9, -7]


def test_log_directories_fall_back_from_the_list_to_the_single_one() -> None:
    assert LogManagerConfig.from_settings({"log.dirs": " /a , /b,/a"}).log_dirs == ("/a", "/b")
    assert LogManagerConfig.from_settings({"log.dir": "/x"}).log_dirs == ("/x",)
    assert LogManagerConfig.from_settings({"log.dir": "/x", "log.dirs": "/y"}).log_dirs == ("/y",)


def test_cordoned_directories_must_be_log_directories() -> None:
    two = {"log.dirs": "/a,/b"}
    assert LogManagerConfig.from_settings({**two, "cordoned.log.dirs": "/a"}).cordoned_log_dirs == {"/a"}
    assert LogManagerConfig.from_settings({**two, "cordoned.log.dirs": "*"}).cordoned_log_dirs == {"/a", "/b"}
    with pytest.raises(InvalidSetting, match="/c is not allowed"):
        LogManagerConfig.from_settings({**two, "cordoned.log.dirs": "/a,/c"})


def test_cleaner_memory_below_one_mebibyte_a_thread_is_refused() -> None:
    texts = {"log.cleaner.threads": "3", "log.cleaner.dedupe.buffer.size": "3145727"}
    with pytest.raises(InvalidSetting, match="at least 3145728"):
        LogManagerConfig.from_settings(texts)
    texts["log.cleaner.dedupe.buffer.size"] = "3145728"
    assert LogManagerConfig.from_settings(texts).log_cleaner_threads == 3


def test_manager_ignores_topic_defaults_among_the_brokers_settings() -> None:
    config = LogManagerConfig.from_settings({"log.retention.ms": "5", "log.cleaner.backoff.ms": "7"})
    assert config == LogManagerConfig(log_cleaner_backoff_ms=7)


@pytest.mark.parametrize(
    ("config", "replication_factor", "expected"),
    [
        (LogConfig(), 1, []),
        (LogConfig(min_insync_replicas=2), 3, []),
        (LogConfig(), 3, ["min.insync.replicas=1 with 3 replicas"]),
        (LogConfig(min_insync_replicas=2), 2, ["stop as soon as one broker does"]),
        (LogConfig(min_insync_replicas=3), 2, ["stop as soon as one broker does"]),
        (LogConfig(min_insync_replicas=2), 1, []),
        (LogConfig(unclean_leader_election_enable=True), 1, ["may drop confirmed records"]),
        (LogConfig(retention_ms=-1), 1, ["the disk will fill up"]),
        (LogConfig(retention_ms=-1, retention_bytes=1), 1, []),
        (LogConfig(cleanup_policy=frozenset()), 1, ["cleanup.policy is empty"]),
        (LogConfig(segment_index_bytes=8), 1, ["may be full after 4096 bytes"]),
    ],
)
def test_topic_settings_that_are_traps_are_warned_of(config, replication_factor, expected) -> None:
    lines = config.warnings(replication_factor)
    assert len(lines) == len(expected)
    assert all(text in line for text, line in zip(expected, lines, strict=True))


def test_directory_under_tmp_and_a_cleaner_that_is_off_are_warned_of() -> None:
    assert len(LogManagerConfig().warnings()) == 1
    assert LogManagerConfig(log_dirs=("/var/lib/barnabas",)).warnings() == []
    assert len(LogManagerConfig(log_dirs=("/data",), log_cleaner_enable=False).warnings()) == 1


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [
        (604_800_000, Unit.MILLISECONDS, "604800000 (7 days)"),
        (3_600_000, Unit.MILLISECONDS, "3600000 (1 hour)"),
        (15_000, Unit.MILLISECONDS, "15000 (15 seconds)"),
        (1_500, Unit.MILLISECONDS, "1500"),
        (168, Unit.HOURS, "168 (7 days)"),
        (5, Unit.HOURS, "5"),
        (120, Unit.MINUTES, "120 (2 hours)"),
        (1 << 30, Unit.BYTES, "1073741824 (1 GiB)"),
        (1_048_588, Unit.BYTES, "1048588"),
        (0, Unit.BYTES, "0"),
        (LONG_MAX, Unit.MILLISECONDS, "9223372036854775807 (no limit)"),
        (86_400_000, Unit.NONE, "86400000"),
    ],
)
def test_number_is_shown_with_its_human_size_where_that_is_exact(number, unit, text) -> None:
    assert with_unit(number, unit) == text


def test_range_that_excludes_its_lower_end_says_so() -> None:
    above_zero = Between(0, low_is_excluded=True)
    assert (above_zero.allows(0), above_zero.allows(0.1)) == (False, True)
    assert above_zero.describe(Unit.NONE) == "more than 0"


@pytest.mark.parametrize(("text", "name", "value"), [("a.b=c", "a.b", "c"), ("a=", "a", ""), (" a = b=c", "a", " b=c")])
def test_assignment_is_split_at_its_first_equals_sign(text, name, value) -> None:
    assert parse_assignment(text) == (name, value)


@pytest.mark.parametrize("text", ["a.b", "=c", ""])
def test_assignment_without_a_name_or_an_equals_sign_is_refused(text) -> None:
    with pytest.raises(InvalidSetting, match="not of the form NAME=VALUE"):
        parse_assignment(text)


def test_double_is_written_as_kafka_writes_it() -> None:
    row = LOG_SETTINGS["log.cleaner.io.max.bytes.per.second"]
    assert row.format(row.default) == "1.7976931348623157E308"
    assert row.dynamic is Dynamic.YES
