"""The rows for every topic setting and every log setting of a broker.

Names, types, defaults, ranges and what may change at run time are Apache Kafka 4.3's, except that a value
which Kafka would accept and then misbehave with (a cleaner of no threads, a billion threads, a speed limit of
zero, an index without room for an entry, NaN) is refused here. A topic setting names the broker-wide ones that
give its default; where those have the same type, default and range, their rows are made from the topic's.
`barnabas.storage.settings` turns values into what the log reads.

To add a setting, add a row here and a field of the same name there, and regenerate the page with
`barnabas.cli.settings_page`.
"""

import re

from barnabas.base.settings import (
    DOUBLE_MAX,
    LONG_MAX,
    Between,
    Dynamic,
    ListOf,
    NegativeOrAtLeast,
    OneOf,
    Setting,
    SettingTable,
    SettingType,
    SettingValue,
    Synonym,
    ThrottledReplicas,
    Validator,
)

BOOLEAN, INT, LONG = SettingType.BOOLEAN, SettingType.INT, SettingType.LONG
DOUBLE, STRING, LIST = SettingType.DOUBLE, SettingType.STRING, SettingType.LIST

DIRECTORIES = "Directories and recovery"
SEGMENTS = "Segments and indexes"
RETENTION = "Retention"
COMPACTION = "Compaction"
FLUSH = "Flush and checkpoints"
MESSAGES = "Messages"
PRODUCERS = "Producers"
COMPRESSION = "Compression"
REPLICATION = "Replication"
TIERED = "Tiered storage"

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_WEEK_MS = 7 * _DAY_MS
_MIB = 1 << 20

_AT_LEAST_0 = Between(0)
_AT_LEAST_1 = Between(1)
_MORE_THAN_0 = Between(0, low_is_excluded=True)
_INDEX_BYTES_MIN = 1024
"""An index without room for entries would give every batch a segment of its own."""
THREADS = Between(1, 256)
"""More threads than this do not make anything faster, and at some number the system refuses them."""
_POLICIES = ListOf(re.compile("compact|delete"), "any of compact, delete")
_CODEC_NAMES = OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
_PATHS = ListOf(re.compile(".+"), "a comma-separated list of paths", may_be_empty=False)
_NO_TIERED_STORAGE = "tiered storage"


def _topic(
    group: str,
    name: str,
    value_type: SettingType,
    default: SettingValue,
    validator: Validator | None,
    doc: str,
    *broker_settings: str | Synonym,
    unsupported: str = "",
    is_internal: bool = False,
) -> Setting:
    synonyms = tuple(item if isinstance(item, Synonym) else Synonym(item) for item in broker_settings)
    # fmt: off
    return Setting(name, value_type, default, doc, group, validator,
                   synonyms=synonyms, unsupported=unsupported, is_internal=is_internal)
    # fmt: on


# fmt: off
TOPIC_SETTINGS = SettingTable("topic", (
    _topic(SEGMENTS, "segment.bytes", INT, 1 << 30, Between(_MIB),
           "A segment that would grow past this size is closed and a new one is started. Smaller segments let "
           "retention and compaction work in finer steps, at the price of more files.",
           "log.segment.bytes"),
    _topic(SEGMENTS, "internal.segment.bytes", INT, None, _AT_LEAST_1,
           "Replaces `segment.bytes` without its lower bound, for tests.",
           is_internal=True),
    _topic(SEGMENTS, "segment.ms", LONG, _WEEK_MS, _AT_LEAST_1,
           "A segment older than this is closed at the next append, full or not, so that its records can "
           "expire.",
           "log.roll.ms", Synonym("log.roll.hours", _HOUR_MS)),
    _topic(SEGMENTS, "segment.jitter.ms", LONG, 0, _AT_LEAST_0,
           "Up to this much is subtracted from `segment.ms` at random, so that many partitions do not all roll at "
           "once.",
           "log.roll.jitter.ms", Synonym("log.roll.jitter.hours", _HOUR_MS)),
    _topic(SEGMENTS, "segment.index.bytes", INT, 10 * _MIB, Between(_INDEX_BYTES_MIN),
           "Largest size of a segment's index file. A full index closes the segment too.",
           "log.index.size.max.bytes"),
    _topic(SEGMENTS, "index.interval.bytes", INT, 4096, _AT_LEAST_0,
           "One index entry is written for about this many bytes of log. Denser indexes find records with "
           "less scanning and take more space.",
           "log.index.interval.bytes"),
    _topic(SEGMENTS, "file.delete.delay.ms", LONG, _MINUTE_MS, _AT_LEAST_0,
           "How long the files of a deleted segment stay on disk, renamed, before they are removed.",
           "log.segment.delete.delay.ms"),
    _topic(SEGMENTS, "preallocate", BOOLEAN, False, None,
           "Reserves a new segment's whole size on disk when it is created.",
           "log.preallocate"),
    _topic(RETENTION, "cleanup.policy", LIST, ("delete",), _POLICIES,
           "`delete` deletes old segments by age and size, `compact` keeps the newest record of each key, and both "
           "can be combined. With an empty list nothing is ever removed.",
           "log.cleanup.policy"),
    _topic(RETENTION, "retention.ms", LONG, _WEEK_MS, Between(-1),
           "Under the `delete` policy, a segment whose newest record is older than this is deleted, "
           "whether or not anyone read it. -1 sets no limit.",
           "log.retention.ms",
           Synonym("log.retention.minutes", _MINUTE_MS), Synonym("log.retention.hours", _HOUR_MS)),
    _topic(RETENTION, "retention.bytes", LONG, -1, None,
           "Under the `delete` policy, the oldest segments of a partition are deleted as long as it stays at least "
           "this large without them. The limit applies per partition, not per topic; a negative number sets no limit.",
           "log.retention.bytes"),
    _topic(COMPACTION, "min.cleanable.dirty.ratio", DOUBLE, 0.5, Between(0, 1),
           "A log is compacted when at least this part of it was written since the last time. A lower "
           "ratio wastes less disk and does more work.",
           "log.cleaner.min.cleanable.ratio"),
    _topic(COMPACTION, "min.compaction.lag.ms", LONG, 0, _AT_LEAST_0,
           "A record is never compacted away before it reaches this age. At most `max.compaction.lag.ms`.",
           "log.cleaner.min.compaction.lag.ms"),
    _topic(COMPACTION, "max.compaction.lag.ms", LONG, LONG_MAX, _AT_LEAST_1,
           "A record becomes due for compaction at this age, however small the dirty part of the log is. "
           "It also closes the active segment of a compacted log in time.",
           "log.cleaner.max.compaction.lag.ms"),
    _topic(COMPACTION, "delete.retention.ms", LONG, _DAY_MS, _AT_LEAST_0,
           "How long compaction keeps a tombstone: the time a reader has, from the beginning of the log, "
           "to learn of a deletion.",
           "log.cleaner.delete.retention.ms"),
    _topic(FLUSH, "flush.messages", LONG, LONG_MAX, _AT_LEAST_1,
           "Forces the log to disk after this many records. By default the operating system decides and "
           "replication keeps the data safe; 1 flushes every append before it is acknowledged.",
           "log.flush.interval.messages"),
    _topic(FLUSH, "flush.ms", LONG, LONG_MAX, _AT_LEAST_0,
           "Forces the log to disk when its oldest unflushed record has waited this long.",
           "log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    _topic(MESSAGES, "max.message.bytes", INT, _MIB + 12, _AT_LEAST_0,
           "The largest record batch that is accepted, after compression if it is compressed. The default is 1 MiB "
           "plus the 12 bytes in front of a batch.",
           "message.max.bytes"),
    _topic(MESSAGES, "message.timestamp.type", STRING, "CreateTime", OneOf(("CreateTime", "LogAppendTime")),
           "Whether a record carries the time its producer gave it or the time at which the broker "
           "appended it.",
           "log.message.timestamp.type"),
    _topic(MESSAGES, "message.timestamp.before.max.ms", LONG, LONG_MAX, _AT_LEAST_0,
           "Refuses records whose timestamp lies further in the past than this. Without effect with "
           "`LogAppendTime`.",
           "log.message.timestamp.before.max.ms"),
    _topic(MESSAGES, "message.timestamp.after.max.ms", LONG, _HOUR_MS, _AT_LEAST_0,
           "Refuses records whose timestamp lies further in the future than this: one such record would "
           "keep its segment from expiring. Without effect with `LogAppendTime`.",
           "log.message.timestamp.after.max.ms"),
    _topic(COMPRESSION, "compression.type", STRING, "producer", _CODEC_NAMES,
           "The codec in which batches are stored. `producer` keeps each batch as it was sent, which costs the "
           "broker nothing; any other value recompresses the batches that differ.",
           "compression.type"),
    _topic(COMPRESSION, "compression.gzip.level", INT, -1, Between(1, 9, also=(-1,)),
           "Level for `compression.type=gzip`; -1 leaves it to the library.",
           "compression.gzip.level"),
    _topic(COMPRESSION, "compression.lz4.level", INT, 9, Between(1, 17),
           "Level for `compression.type=lz4`.",
           "compression.lz4.level"),
    _topic(COMPRESSION, "compression.zstd.level", INT, 3, Between(-131_072, 22),
           "Level for `compression.type=zstd`; the further below zero, the faster and larger.",
           "compression.zstd.level"),
    _topic(REPLICATION, "min.insync.replicas", INT, 1, _AT_LEAST_1,
           "With `acks=all`, how many replicas must be in sync for a write to be accepted. With three "
           "replicas set it to 2: at 1, an acknowledged record may exist only once.",
           "min.insync.replicas"),
    _topic(REPLICATION, "unclean.leader.election.enable", BOOLEAN, False, None,
           "Lets a replica that is not in sync become leader when no other is left: the partition becomes available "
           "again, without the records that this replica lacks.",
           "unclean.leader.election.enable"),
    _topic(REPLICATION, "leader.replication.throttled.replicas", LIST, (), ThrottledReplicas(),
           "Replicas whose replication is limited to the broker's throttled rate on the leader's side."),
    _topic(REPLICATION, "follower.replication.throttled.replicas", LIST, (), ThrottledReplicas(),
           "Replicas whose replication is limited to the broker's throttled rate on the follower's side."),
    _topic(TIERED, "remote.storage.enable", BOOLEAN, False, None,
           "Moves old segments to a remote store.",
           unsupported=_NO_TIERED_STORAGE),
    _topic(TIERED, "local.retention.ms", LONG, -2, Between(-2),
           "Age at which a segment that was copied away leaves the local disk; -2 follows `retention.ms`.",
           "log.local.retention.ms", unsupported=_NO_TIERED_STORAGE),
    _topic(TIERED, "local.retention.bytes", LONG, -2, Between(-2),
           "Size above which segments that were copied away leave the local disk; -2 follows "
           "`retention.bytes`.",
           "log.local.retention.bytes", unsupported=_NO_TIERED_STORAGE),
    _topic(TIERED, "remote.log.copy.disable", BOOLEAN, False, None,
           "Stops copying further segments to the remote store.",
           unsupported=_NO_TIERED_STORAGE),
    _topic(TIERED, "remote.log.delete.on.disable", BOOLEAN, False, None,
           "Deletes what the remote store holds when it is switched off for the topic.",
           unsupported=_NO_TIERED_STORAGE),
))
# fmt: on


def _broker(
    group: str,
    name: str,
    value_type: SettingType,
    default: SettingValue,
    validator: Validator | None,
    doc: str,
    dynamic: Dynamic = Dynamic.NO,
    unsupported: str = "",
) -> Setting:
    return Setting(name, value_type, default, doc, group, validator, dynamic, unsupported=unsupported)


def _topic_default(name: str, topic_name: str) -> Setting:
    """The broker-wide setting that is the default of a topic setting, with the same values."""
    topic = TOPIC_SETTINGS[topic_name]
    doc = f"Default of `{topic_name}` for topics that do not set it."
    # fmt: off
    return Setting(name, topic.type, topic.default, doc, topic.group, topic.validator,
                   unsupported=topic.unsupported)
    # fmt: on


# fmt: off
LOG_SETTINGS = SettingTable("broker", (
    _broker(DIRECTORIES, "log.dirs", LIST, None, _PATHS,
            "Where the partitions are kept, one directory per disk. A new partition goes to the emptiest one; if one "
            "fails, only that one goes offline. If not set, `log.dir` is used."),
    _broker(DIRECTORIES, "log.dir", LIST, ("/tmp/kafka-logs",), _PATHS,
            "The directory when `log.dirs` is not set. The default is Kafka's and does not survive a reboot "
            "on many systems: set one of the two."),
    _broker(DIRECTORIES, "cordoned.log.dirs", LIST, (),
            ListOf(re.compile(".+"), "directories from `log.dirs`, or `*` for all"),
            "Directories that keep what they hold and get no new partitions, to drain a disk.",
            Dynamic.PER_BROKER),
    _broker(DIRECTORIES, "log.dir.failure.timeout.ms", LONG, 30_000, _AT_LEAST_1,
            "A broker stops if it cannot report a failed directory that held leaders to the cluster within this time."),
    _broker(DIRECTORIES, "num.recovery.threads.per.data.dir", INT, 2, THREADS,
            "How many partitions of one directory are opened, recovered or closed at the same time.",
            Dynamic.YES),
    _broker(DIRECTORIES, "log.initial.task.delay.ms", LONG, 30_000, _AT_LEAST_0,
            "How long after the start the first round of retention, flushing and checkpoints waits."),
    _topic_default("log.segment.bytes", "segment.bytes"),
    _broker(SEGMENTS, "log.roll.ms", LONG, None, _AT_LEAST_1,
            "Default of `segment.ms`. If not set, `log.roll.hours` decides.", Dynamic.YES),
    _broker(SEGMENTS, "log.roll.hours", INT, 168, _AT_LEAST_1,
            "Default of `segment.ms` in hours."),
    _broker(SEGMENTS, "log.roll.jitter.ms", LONG, None, _AT_LEAST_0,
            "Default of `segment.jitter.ms`. If not set, `log.roll.jitter.hours` decides.", Dynamic.YES),
    _broker(SEGMENTS, "log.roll.jitter.hours", INT, 0, _AT_LEAST_0,
            "Default of `segment.jitter.ms` in hours."),
    _topic_default("log.index.size.max.bytes", "segment.index.bytes"),
    _topic_default("log.index.interval.bytes", "index.interval.bytes"),
    _topic_default("log.segment.delete.delay.ms", "file.delete.delay.ms"),
    _topic_default("log.preallocate", "preallocate"),
    _topic_default("log.cleanup.policy", "cleanup.policy"),
    _broker(RETENTION, "log.retention.ms", LONG, None, NegativeOrAtLeast(),
            "Default of `retention.ms`. If not set, `log.retention.minutes` decides.", Dynamic.YES),
    _broker(RETENTION, "log.retention.minutes", INT, None, NegativeOrAtLeast(),
            "Default of `retention.ms` in minutes. If not set, `log.retention.hours` decides."),
    _broker(RETENTION, "log.retention.hours", INT, 168, NegativeOrAtLeast(),
            "Default of `retention.ms` in hours."),
    _topic_default("log.retention.bytes", "retention.bytes"),
    _broker(RETENTION, "log.retention.check.interval.ms", LONG, 5 * _MINUTE_MS, _AT_LEAST_1,
            "How often to look for segments to delete."),
    _broker(COMPACTION, "log.cleaner.enable", BOOLEAN, True, None,
            "Whether compaction runs at all. Without it compacted topics, the consumers' offsets among "
            "them, only grow."),
    _broker(COMPACTION, "log.cleaner.threads", INT, 1, THREADS,
            "How many logs are compacted at the same time; at most half of `background.threads`, so that other work "
            "continues.", Dynamic.YES),
    _broker(COMPACTION, "log.cleaner.dedupe.buffer.size", LONG, 128 * _MIB, _AT_LEAST_1,
            "Memory for the key maps of all cleaner threads together, at least 1 MiB for each. A log with "
            "more keys than fit is compacted in several passes.", Dynamic.YES),
    _broker(COMPACTION, "log.cleaner.io.buffer.size", INT, 512 * 1024, _AT_LEAST_1,
            "Memory for reading and writing, of all cleaner threads together.", Dynamic.YES),
    _broker(COMPACTION, "log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, Between(0, 1, low_is_excluded=True),
            "How full a key map may get. Fuller maps need fewer passes and collide more.", Dynamic.YES),
    _broker(COMPACTION, "log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, _MORE_THAN_0,
            "Speed limit of compaction, reads and writes together, so that it leaves disk bandwidth for producers "
            "and consumers.", Dynamic.YES),
    _broker(COMPACTION, "log.cleaner.backoff.ms", LONG, 15_000, _AT_LEAST_0,
            "How long a cleaner thread sleeps when no log needs compaction.", Dynamic.YES),
    _topic_default("log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio"),
    _topic_default("log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms"),
    _topic_default("log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms"),
    _topic_default("log.cleaner.delete.retention.ms", "delete.retention.ms"),
    _topic_default("log.flush.interval.messages", "flush.messages"),
    _broker(FLUSH, "log.flush.interval.ms", LONG, None, _AT_LEAST_0,
            "Default of `flush.ms`. If not set, `log.flush.scheduler.interval.ms` decides.", Dynamic.YES),
    _broker(FLUSH, "log.flush.scheduler.interval.ms", LONG, LONG_MAX, _AT_LEAST_1,
            "How often to look for logs whose `flush.ms` has passed."),
    _broker(FLUSH, "log.flush.offset.checkpoint.interval.ms", INT, _MINUTE_MS, _AT_LEAST_0,
            "How often the recovery points are written: after a crash, only records after them are checked."),
    _broker(FLUSH, "log.flush.start.offset.checkpoint.interval.ms", INT, _MINUTE_MS, _AT_LEAST_0,
            "How often the logs' start offsets are written, so that deleted records stay deleted."),
    _topic_default("message.max.bytes", "max.message.bytes"),
    _topic_default("log.message.timestamp.type", "message.timestamp.type"),
    _topic_default("log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms"),
    _topic_default("log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms"),
    _broker(PRODUCERS, "producer.id.expiration.ms", INT, _DAY_MS, _AT_LEAST_1,
            "How long a partition remembers the sequence numbers of a producer that has stopped writing to "
            "it.",
            Dynamic.YES),
    _broker(PRODUCERS, "producer.id.expiration.check.interval.ms", INT, 10 * _MINUTE_MS, _AT_LEAST_1,
            "How often to look for producers that have been silent for that long."),
    _broker(PRODUCERS, "transactional.id.expiration.ms", INT, _WEEK_MS, _AT_LEAST_1,
            "How long a transactional id that no transaction uses is remembered."),
    _topic_default("compression.type", "compression.type"),
    _topic_default("compression.gzip.level", "compression.gzip.level"),
    _topic_default("compression.lz4.level", "compression.lz4.level"),
    _topic_default("compression.zstd.level", "compression.zstd.level"),
    _topic_default("min.insync.replicas", "min.insync.replicas"),
    _topic_default("unclean.leader.election.enable", "unclean.leader.election.enable"),
    _broker(TIERED, "remote.log.storage.system.enable", BOOLEAN, False, None,
            "Switches tiered storage on for the broker.", unsupported=_NO_TIERED_STORAGE),
    _topic_default("log.local.retention.ms", "local.retention.ms"),
    _topic_default("log.local.retention.bytes", "local.retention.bytes"),
))
# fmt: on
