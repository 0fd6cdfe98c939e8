"""What the log reads on its hot paths: the settings of one partition and those of the whole broker, parsed
and typed.

`LogConfig` belongs to a topic: its own settings over the broker's defaults. `LogManagerConfig` belongs to the
broker. Both are immutable, so a changed setting is a new object that its owner swaps in. Every field is named
like its setting with underscores for dots, and takes its default from the table, so `LogConfig()` is Kafka's
default configuration.

Objects made directly are not validated (a test may want segments of a hundred bytes); `from_settings`
validates each value and the rules that bind several of them. Pure: no I/O.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from barnabas.base.errors import InvalidSetting
from barnabas.base.settings import SettingTable, SettingValue
from barnabas.records.batch import Codec
from barnabas.storage.setting_tables import LOG_SETTINGS, TOPIC_SETTINGS

CLEANER_DEDUPE_BUFFER_BYTES_MIN = 1 << 20
"""For each cleaner thread."""

_INDEX_ENTRY_BYTES = 8
_SEGMENT_BYTES_LIMIT: Final = 2**31 - 1
"""Positions in the offset index are 32-bit."""
_USUAL_BYTES_MAX: Final = 4 << 20
"""Checking more than this would hold an event loop for longer than a few milliseconds."""
_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class _Defaults:
    """The defaults of one table, each by the type that its reader expects."""

    def __init__(self, table: SettingTable) -> None:
        self._table = table

    def whole(self, name: str) -> int:
        value = self._table[name].default
        assert isinstance(value, int), f"{name} is not a whole number"
        return value

    def number(self, name: str) -> float:
        value = self._table[name].default
        assert isinstance(value, float), f"{name} is not a number"
        return value

    def text(self, name: str) -> str:
        value = self._table[name].default
        assert isinstance(value, str), f"{name} is not text"
        return value

    def members(self, name: str) -> tuple[str, ...]:
        value = self._table[name].default
        assert isinstance(value, tuple), f"{name} is not a list"
        return value

    def flag(self, name: str) -> bool:
        value = self._table[name].default
        assert isinstance(value, bool), f"{name} is not true or false"
        return value


_topic = _Defaults(TOPIC_SETTINGS)
_broker = _Defaults(LOG_SETTINGS)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one topic's logs. Durations that Kafka writes as its largest long mean "never"."""

    segment_bytes: int = _topic.whole("segment.bytes")
    segment_ms: int = _topic.whole("segment.ms")
    segment_jitter_ms: int = _topic.whole("segment.jitter.ms")
    segment_index_bytes: int = _topic.whole("segment.index.bytes")
    index_interval_bytes: int = _topic.whole("index.interval.bytes")
    file_delete_delay_ms: int = _topic.whole("file.delete.delay.ms")
    preallocate: bool = _topic.flag("preallocate")
    cleanup_policy: frozenset[str] = frozenset(_topic.members("cleanup.policy"))
    retention_ms: int = _topic.whole("retention.ms")
    retention_bytes: int = _topic.whole("retention.bytes")
    min_cleanable_dirty_ratio: float = _topic.number("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = _topic.whole("min.compaction.lag.ms")
    max_compaction_lag_ms: int = _topic.whole("max.compaction.lag.ms")
    delete_retention_ms: int = _topic.whole("delete.retention.ms")
    flush_messages: int = _topic.whole("flush.messages")
    flush_ms: int = _topic.whole("flush.ms")
    max_message_bytes: int = _topic.whole("max.message.bytes")
    message_timestamp_type: str = _topic.text("message.timestamp.type")
    message_timestamp_before_max_ms: int = _topic.whole("message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = _topic.whole("message.timestamp.after.max.ms")
    compression_type: str = _topic.text("compression.type")
    compression_gzip_level: int = _topic.whole("compression.gzip.level")
    compression_lz4_level: int = _topic.whole("compression.lz4.level")
    compression_zstd_level: int = _topic.whole("compression.zstd.level")
    min_insync_replicas: int = _topic.whole("min.insync.replicas")
    unclean_leader_election_enable: bool = _topic.flag("unclean.leader.election.enable")
    leader_replication_throttled_replicas: frozenset[str] = frozenset()
    follower_replication_throttled_replicas: frozenset[str] = frozenset()

    # What follows from the settings, worked out once, because every append asks.
    is_compacted: bool = field(init=False, repr=False, compare=False)
    is_log_append_time: bool = field(init=False, repr=False, compare=False)
    stored_codec: Codec | None = field(init=False, repr=False, compare=False)
    """The codec in which every batch is stored; None leaves each as its producer sent it."""
    usual_bytes_max: int = field(init=False, repr=False, compare=False)
    """The largest uncompressed batch that is stored at once, without any change but its offsets; -1 for none."""
    roll_after_ms: int = field(init=False, repr=False, compare=False)
    """Age at which a segment is closed: a compacted log may need it closed earlier than `segment.ms`."""
    segment_bytes_max: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        stored_codec = _CODECS.get(self.compression_type)
        is_compacted = "compact" in self.cleanup_policy
        is_log_append_time = self.message_timestamp_type == "LogAppendTime"
        is_stored_as_sent = not is_log_append_time and stored_codec in (None, Codec.NONE)
        derived = {
            "is_compacted": is_compacted,
            "is_log_append_time": is_log_append_time,
            "stored_codec": stored_codec,
            "usual_bytes_max": min(self.max_message_bytes, _USUAL_BYTES_MAX) if is_stored_as_sent else -1,
            "roll_after_ms": min(self.segment_ms, self.max_compaction_lag_ms) if is_compacted else self.segment_ms,
            "segment_bytes_max": min(self.segment_bytes, _SEGMENT_BYTES_LIMIT),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_settings(cls, topic: Mapping[str, str], broker: Mapping[str, str] | None = None) -> "LogConfig":
        """A topic's configuration from the texts of its settings and of the broker's log settings."""
        return cls.broker_defaults(broker or {}).with_topic_settings(topic)

    @classmethod
    def broker_defaults(cls, broker: Mapping[str, str]) -> "LogConfig":
        """What a topic without settings gets; compute it once and apply `with_topic_settings` to it."""
        given = LOG_SETTINGS.parse(broker)
        values: dict[str, SettingValue] = {}
        for setting in TOPIC_SETTINGS:
            for synonym in setting.synonyms:
                value = given.get(synonym.name)
                if value is not None:
                    values[setting.name] = _in_topic_unit(value, synonym.factor)
                    break
        retention_ms = values.get("retention.ms")
        if isinstance(retention_ms, int) and retention_ms < 0:
            values["retention.ms"] = -1
        return cls()._changed(values, "log.cleaner.")

    def with_topic_settings(self, topic: Mapping[str, str]) -> "LogConfig":
        """This configuration with a topic's own settings over it."""
        return self._changed(TOPIC_SETTINGS.parse(topic), "") if topic else self

    def _changed(self, values: Mapping[str, SettingValue], lag_prefix: str) -> "LogConfig":
        changes: dict[str, Any] = {}
        for name, value in values.items():
            if not TOPIC_SETTINGS[name].unsupported:
                changes[field_name(name)] = frozenset(value) if isinstance(value, tuple) else value
        internal_segment_bytes = changes.pop("internal_segment_bytes", None)
        if internal_segment_bytes is not None:
            changes["segment_bytes"] = internal_segment_bytes
        config = replace(self, **changes)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidSetting(
                f"{lag_prefix}min.compaction.lag.ms={config.min_compaction_lag_ms} must not be more than"
                f" {lag_prefix}max.compaction.lag.ms={config.max_compaction_lag_ms}"
            )
        return config

    @property
    def is_deleted(self) -> bool:
        """Old segments are dropped by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def roll_jitter_ms_max(self) -> int:
        """Upper bound, excluded, of what is taken off a segment's age limit at random; 0 for none."""
        return min(self.segment_jitter_ms, self.segment_ms)

    def compression_level(self, codec: Codec) -> int | None:
        """The level to compress with; None leaves it to the library."""
        match codec:
            case Codec.GZIP:
                return None if self.compression_gzip_level == -1 else self.compression_gzip_level
            case Codec.LZ4:
                return self.compression_lz4_level
            case Codec.ZSTD:
                return self.compression_zstd_level
            case _:
                return None

    def warnings(self, replication_factor: int = 1) -> list[str]:
        """Lines about settings that are allowed and probably not what was meant."""
        lines = replication_warnings(
            replication_factor, self.min_insync_replicas, is_unclean=self.unclean_leader_election_enable
        )
        if self.is_deleted and self.retention_ms < 0 and self.retention_bytes < 0:
            lines.append("retention.ms and retention.bytes set no limit: the disk will fill up")
        if not self.cleanup_policy:
            lines.append("cleanup.policy is empty: the disk will fill up")
        indexed_bytes = self.segment_index_bytes // _INDEX_ENTRY_BYTES * self.index_interval_bytes
        if indexed_bytes < self.segment_bytes:
            lines.append(
                f"segment.index.bytes={self.segment_index_bytes} with"
                f" index.interval.bytes={self.index_interval_bytes} may be full after {indexed_bytes} bytes,"
                f" before segment.bytes={self.segment_bytes}"
            )
        return lines


@dataclass(frozen=True, slots=True)
class LogManagerConfig:
    """The log settings that hold for the whole broker."""

    log_dirs: tuple[str, ...] = _broker.members("log.dir")
    cordoned_log_dirs: frozenset[str] = frozenset()
    log_dir_failure_timeout_ms: int = _broker.whole("log.dir.failure.timeout.ms")
    num_recovery_threads_per_data_dir: int = _broker.whole("num.recovery.threads.per.data.dir")
    log_initial_task_delay_ms: int = _broker.whole("log.initial.task.delay.ms")
    log_retention_check_interval_ms: int = _broker.whole("log.retention.check.interval.ms")
    log_cleaner_enable: bool = _broker.flag("log.cleaner.enable")
    log_cleaner_threads: int = _broker.whole("log.cleaner.threads")
    log_cleaner_dedupe_buffer_size: int = _broker.whole("log.cleaner.dedupe.buffer.size")
    log_cleaner_io_buffer_size: int = _broker.whole("log.cleaner.io.buffer.size")
    log_cleaner_io_buffer_load_factor: float = _broker.number("log.cleaner.io.buffer.load.factor")
    log_cleaner_io_max_bytes_per_second: float = _broker.number("log.cleaner.io.max.bytes.per.second")
    log_cleaner_backoff_ms: int = _broker.whole("log.cleaner.backoff.ms")
    log_flush_scheduler_interval_ms: int = _broker.whole("log.flush.scheduler.interval.ms")
    log_flush_offset_checkpoint_interval_ms: int = _broker.whole("log.flush.offset.checkpoint.interval.ms")
    log_flush_start_offset_checkpoint_interval_ms: int = _broker.whole("log.flush.start.offset.checkpoint.interval.ms")
    producer_id_expiration_ms: int = _broker.whole("producer.id.expiration.ms")
    producer_id_expiration_check_interval_ms: int = _broker.whole("producer.id.expiration.check.interval.ms")
    transactional_id_expiration_ms: int = _broker.whole("transactional.id.expiration.ms")

    @classmethod
    def from_settings(cls, broker: Mapping[str, str]) -> "LogManagerConfig":
        """The broker's configuration from the texts of its log settings, topic defaults among them."""
        values = LOG_SETTINGS.parse(broker)
        own_fields = {field.name for field in fields(cls)} - {"log_dirs", "cordoned_log_dirs"}
        changes: dict[str, Any] = {
            field_name(name): value for name, value in values.items() if field_name(name) in own_fields
        }
        directories: Any = values.get("log.dirs") or values.get("log.dir") or cls().log_dirs
        cordoned = _cordoned(directories, values.get("cordoned.log.dirs"))
        config = cls(log_dirs=directories, cordoned_log_dirs=cordoned, **changes)
        buffer_bytes_min = CLEANER_DEDUPE_BUFFER_BYTES_MIN * config.log_cleaner_threads
        if config.log_cleaner_dedupe_buffer_size < buffer_bytes_min:
            raise InvalidSetting(
                f"log.cleaner.dedupe.buffer.size={config.log_cleaner_dedupe_buffer_size} is not allowed with"
                f" log.cleaner.threads={config.log_cleaner_threads}; it must be at least {buffer_bytes_min}"
                " (1 MiB for each thread)"
            )
        return config

    def warnings(self) -> list[str]:
        """Lines about settings that are allowed and probably not what was meant."""
        lines = [
            f"log directory {directory}: many systems empty /tmp when they start"
            for directory in self.log_dirs
            if directory == "/tmp" or directory.startswith("/tmp/")
        ]
        if not self.log_cleaner_enable:
            lines.append("log.cleaner.enable=false: compacted topics only grow")
        return lines


def replication_warnings(replicas: int, minimum: int, *, is_unclean: bool, brokers: int = 1) -> list[str]:
    """Lines about choices with which a failure loses records, or stops writes, sooner than need be.

    `minimum` is `min.insync.replicas`; one above the number of replicas means all of them.
    """
    lines = []
    if replicas == 1 and brokers > 1:
        lines.append(f"one replica in a cluster of {brokers} brokers: records are lost with the disk of their broker")
    if replicas >= 3 and minimum == 1:
        lines.append(
            f"min.insync.replicas=1 with {replicas} replicas: a record that acks=all confirmed may exist on one disk "
            "only; set it to 2"
        )
    if minimum >= replicas > 1:
        lines.append(
            f"min.insync.replicas={minimum} with {replicas} replicas: writes with acks=all stop as soon as one broker "
            "does"
        )
    if is_unclean:
        lines.append("unclean.leader.election.enable=true: a failover may drop confirmed records")
    return lines


def field_name(setting_name: str) -> str:
    """The field of `LogConfig` or `LogManagerConfig` that carries a setting."""
    return setting_name.replace(".", "_")


def _in_topic_unit(value: SettingValue, factor: int) -> SettingValue:
    if factor == 1:
        return value
    assert isinstance(value, int), "only whole numbers come in another unit"
    return value * factor


def _cordoned(directories: tuple[str, ...], cordoned: SettingValue) -> frozenset[str]:
    assert cordoned is None or isinstance(cordoned, tuple), "a list"
    if cordoned == ("*",):
        return frozenset(directories)
    missing = [directory for directory in cordoned or () if directory not in directories]
    if missing:
        raise InvalidSetting(f"cordoned.log.dirs={','.join(missing)} is not allowed; log.dirs does not have it")
    return frozenset(cordoned or ())
