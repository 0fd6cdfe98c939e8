"""Every metric that a broker serves: name, kind, labels, meaning. `docs/metrics.md` is written from this table.

Names follow Prometheus's conventions: `barnabas_`, the subject, the base unit (seconds, bytes), `_total` for counters.
To add one, put a `Description` into its section here, register it where it is measured, and regenerate the page with
`make docs`. A test starts a broker and fails when it serves a name that is not here, or does not serve one that is.
"""

from dataclasses import dataclass
from typing import Final

from barnabas.base.metrics import Description, Kind

COUNTER, GAUGE, HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

_REQUEST_BOUNDS: Final = (
    *(0.000_05, 0.000_1, 0.000_25, 0.000_5),
    *(0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
"""From the quickest answer to the longest wait that a client's default timeout (30 s) allows."""
_FLUSH_BOUNDS: Final = (0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_LOAD_BOUNDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_PARTITION: Final = ("topic", "partition")
_GROUP_PARTITION: Final = ("group", "topic", "partition")

# fmt: off
BUILD_INFO: Final = Description(
    GAUGE, "barnabas_build_info",
    "Always 1. The labels say which Barnabas runs on which Python; `kernel` is `compiled`, or `python` where the "
    "slower reference is used.", ("version", "python", "kernel"))

NETWORK_RECEIVED_BYTES: Final = Description(
    COUNTER, "barnabas_network_received_bytes_total", "Bytes received from clients.")
NETWORK_SENT_BYTES: Final = Description(
    COUNTER, "barnabas_network_sent_bytes_total", "Bytes sent to clients.")
CONNECTIONS: Final = Description(
    GAUGE, "barnabas_connections", "Open connections.")
CONNECTIONS_ACCEPTED: Final = Description(
    COUNTER, "barnabas_connections_accepted_total", "Connections accepted.")
CONNECTIONS_REFUSED: Final = Description(
    COUNTER, "barnabas_connections_refused_total",
    "Connections closed at once, because of `max.connections` or `max.connections.per.ip`.")
CONNECTIONS_CLOSED_IDLE: Final = Description(
    COUNTER, "barnabas_connections_closed_idle_total",
    "Connections closed because they were idle for `connections.max.idle.ms`.")

REQUESTS_RECEIVED: Final = Description(
    COUNTER, "barnabas_requests_received_total", "Requests received.")
REQUEST_SECONDS: Final = Description(
    HISTOGRAM, "barnabas_request_seconds",
    "Time from a request to its response. For Fetch it leaves out the wait for records, which is in "
    "`barnabas_fetch_wait_seconds`; for JoinGroup and SyncGroup it includes the wait for other members. Its count is "
    "the number of requests answered.", ("api",), _REQUEST_BOUNDS)
FETCH_WAIT_SECONDS: Final = Description(
    HISTOGRAM, "barnabas_fetch_wait_seconds",
    "Time that a Fetch waited for records, up to the consumer's `fetch.max.wait.ms`. Fetches that found enough at "
    "once are not counted.", (), _REQUEST_BOUNDS)
REQUEST_ERRORS: Final = Description(
    COUNTER, "barnabas_request_errors_total",
    "Error codes in responses, by Kafka's names, counted for each partition, topic or group that a response refuses. "
    "Some are part of normal operation: MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS.", ("api", "code"))
REQUEST_BUGS: Final = Description(
    COUNTER, "barnabas_request_bugs_total",
    "Requests that failed because of a bug in the broker; each closed its connection. If it is not 0, please report "
    "it with the log.", ("api",))
REQUESTS_DECODED: Final = Description(
    COUNTER, "barnabas_requests_decoded_total",
    "Requests by the codec that decoded them, for the APIs that have a compiled codec besides the reference.",
    ("api", "codec"))
REQUESTS_DECLINED: Final = Description(
    COUNTER, "barnabas_requests_declined_total",
    "Requests that the compiled codec passed on to the reference: an old version, a field that it does not read, too "
    "long, or not readable at all.", ("api", "reason"))
FETCH_COLD_READS: Final = Description(
    COUNTER, "barnabas_fetch_cold_reads_total",
    "Ranges of log files that were not in the page cache and were read from the disk before they were sent.")

TOPIC_APPENDED_BYTES: Final = Description(
    COUNTER, "barnabas_topic_appended_bytes_total",
    "Bytes of record batches written to a topic, as they are stored. Refused batches, and retries that the log "
    "already has, are not counted.", ("topic",))
TOPIC_APPENDED_RECORDS: Final = Description(
    COUNTER, "barnabas_topic_appended_records_total", "Records written to a topic.", ("topic",))
TOPIC_SENT_BYTES: Final = Description(
    COUNTER, "barnabas_topic_sent_bytes_total", "Bytes of record batches in Fetch responses.", ("topic",))

LOG_BYTES: Final = Description(
    GAUGE, "barnabas_log_bytes", "Size of a partition's log.", _PARTITION)
LOG_START_OFFSET: Final = Description(
    GAUGE, "barnabas_log_start_offset", "Offset of the first record that can be read.", _PARTITION)
LOG_END_OFFSET: Final = Description(
    GAUGE, "barnabas_log_end_offset", "Offset that the next record will get.", _PARTITION)
LOG_DIRECTORIES_OFFLINE: Final = Description(
    GAUGE, "barnabas_log_directories_offline", "Log directories that failed; they stay offline until a restart.")
STRAY_LOGS: Final = Description(
    GAUGE, "barnabas_stray_logs",
    "Partition directories that the metadata does not know; they are kept, but not served.")
LOG_DIRECTORY_FREE_BYTES: Final = Description(
    GAUGE, "barnabas_log_directory_free_bytes", "Free space on the disk of a log directory.", ("directory",))
LOG_DIRECTORY_FULL: Final = Description(
    GAUGE, "barnabas_log_directory_full",
    "1 while writes to a log directory are refused for lack of space, otherwise 0.", ("directory",))
FLUSH_SECONDS: Final = Description(
    HISTOGRAM, "barnabas_flush_seconds",
    "Time to sync the files of one log to the disk. Its count is the number of flushes.", (), _FLUSH_BOUNDS)

PARTITIONS_UNDER_REPLICATED: Final = Description(
    GAUGE, "barnabas_partitions_under_replicated",
    "Partitions that this broker leads, and of which not every replica is in sync.")
PARTITIONS_AT_MINIMUM: Final = Description(
    GAUGE, "barnabas_partitions_at_minimum",
    "Partitions that this broker leads, and of which just as many replicas are in sync as `min.insync.replicas` asks "
    "for: with one less, acks=all is refused. Those whose replicas are all in sync do not count.")
PARTITIONS_BELOW_MINIMUM: Final = Description(
    GAUGE, "barnabas_partitions_below_minimum",
    "Partitions that this broker leads, and of which fewer replicas are in sync than `min.insync.replicas` asks for: "
    "acks=all is refused, and nothing is committed.")
PARTITIONS_OFFLINE: Final = Description(
    GAUGE, "barnabas_partitions_offline",
    "Partitions of the cluster that nobody leads, as the controller knows; 0 on the other brokers.")
CONTROLLER_ACTIVE: Final = Description(
    GAUGE, "barnabas_controller_active", "1 on the broker that is the controller, 0 on the others.")
DEAD_SESSIONS_ENDED: Final = Description(
    COUNTER, "barnabas_dead_sessions_ended_total",
    "Sessions of other brokers that this broker ended, because their processes were dead.")
LEADERSHIPS_BEGUN: Final = Description(
    COUNTER, "barnabas_leaderships_begun_total",
    "Partitions that this broker began to lead: at its start, when they were created, and when it took over.")
ISR_SHRINKS: Final = Description(
    COUNTER, "barnabas_isr_shrinks_total",
    "How often fewer replicas were in sync of a partition that this broker leads.")
ISR_EXPANSIONS: Final = Description(
    COUNTER, "barnabas_isr_expansions_total",
    "How often more replicas were in sync of a partition that this broker leads.")
REPLICATION_LAG_RECORDS: Final = Description(
    GAUGE, "barnabas_replication_lag_records",
    "Offsets that a follower is behind this broker, in the partition where that is most.", ("follower",))
REPLICATION_LAG_SECONDS: Final = Description(
    GAUGE, "barnabas_replication_lag_seconds",
    "For how long a follower has not had everything that this broker has, in the partition where that is longest. "
    "After `replica.lag.time.max.ms` it is no longer in sync.", ("follower",))

CLEANER_RUNNING: Final = Description(
    GAUGE, "barnabas_cleaner_running_passes", "Logs that are being compacted.")
CLEANER_PASSES: Final = Description(
    COUNTER, "barnabas_cleaner_passes_total", "Compaction passes that ended, successful or not.")
CLEANER_READ_BYTES: Final = Description(
    COUNTER, "barnabas_cleaner_read_bytes_total", "Bytes that compaction read.")
CLEANER_WRITTEN_BYTES: Final = Description(
    COUNTER, "barnabas_cleaner_written_bytes_total", "Bytes that compaction wrote.")
CLEANER_REPLACED_SEGMENTS: Final = Description(
    COUNTER, "barnabas_cleaner_replaced_segments_total", "Segments that compaction replaced.")
CLEANER_DIRTY_RATIO: Final = Description(
    GAUGE, "barnabas_cleaner_dirty_ratio_max",
    "Dirty ratio of the dirtiest log, from 0 to 1, when the cleaner last looked for work.")
CLEANER_DAMAGED_PARTITIONS: Final = Description(
    GAUGE, "barnabas_cleaner_damaged_partitions",
    "Partitions that are no longer compacted because their log is damaged; `barnabas log verify` shows where.")

GROUPS: Final = Description(
    GAUGE, "barnabas_groups", "Groups by state.", ("state",))
GROUP_REBALANCES: Final = Description(
    COUNTER, "barnabas_group_rebalances_total", "Rebalances that ended, in all groups.")
GROUP_OFFSET_COMMITS: Final = Description(
    COUNTER, "barnabas_group_offset_commits_total", "Requests that committed offsets.")
GROUP_OFFSETS_EXPIRED: Final = Description(
    COUNTER, "barnabas_group_offsets_expired_total", "Committed offsets removed because of age.")
GROUP_LOAD_SECONDS: Final = Description(
    HISTOGRAM, "barnabas_group_load_seconds",
    "Time to load the groups of one partition of `__consumer_offsets`.", (), _LOAD_BOUNDS)
GROUP_COMMITTED_OFFSET: Final = Description(
    GAUGE, "barnabas_group_committed_offset", "The offset that a group has committed.", _GROUP_PARTITION)
GROUP_LAG_RECORDS: Final = Description(
    GAUGE, "barnabas_group_lag_records",
    "Records between a group's committed offset and the end of the partition.", _GROUP_PARTITION)
GROUP_LAG_SECONDS: Final = Description(
    GAUGE, "barnabas_group_lag_seconds",
    "Age of the first record that a group has not committed, by its timestamp: exact for the first record of a "
    "batch, estimated within a batch. 0 when there is none; absent where records have no timestamp.", _GROUP_PARTITION)
GROUP_LAG_UNMEASURED: Final = Description(
    GAUGE, "barnabas_group_lag_unmeasured_partitions",
    "Partitions with committed offsets beyond the first 20,000; their offset and lag are not shown.")
# fmt: on


@dataclass(frozen=True, slots=True)
class Section:
    """Metrics that belong together on the page."""

    title: str
    text: str
    metrics: tuple[Description, ...]


SECTIONS: Final = (
    Section("Broker", "", (BUILD_INFO,)),
    Section(
        "Network",
        "",
        (
            NETWORK_RECEIVED_BYTES,
            NETWORK_SENT_BYTES,
            CONNECTIONS,
            CONNECTIONS_ACCEPTED,
            CONNECTIONS_REFUSED,
            CONNECTIONS_CLOSED_IDLE,
        ),
    ),
    Section(
        "Requests",
        "",
        (
            REQUESTS_RECEIVED,
            REQUEST_SECONDS,
            FETCH_WAIT_SECONDS,
            REQUEST_ERRORS,
            REQUEST_BUGS,
            REQUESTS_DECODED,
            REQUESTS_DECLINED,
            FETCH_COLD_READS,
        ),
    ),
    Section(
        "Topics",
        "The series of a deleted topic disappear with it. A broker sends ranges of files without looking at the "
        "records in them, so it does not know how many records it sends; to see how fast a group consumes, look at "
        "how fast `barnabas_group_committed_offset` grows (`deriv`).",
        (TOPIC_APPENDED_BYTES, TOPIC_APPENDED_RECORDS, TOPIC_SENT_BYTES),
    ),
    Section(
        "Logs",
        "Partitions of internal topics that never held a record have no series.",
        (
            LOG_BYTES,
            LOG_START_OFFSET,
            LOG_END_OFFSET,
            LOG_DIRECTORIES_OFFLINE,
            STRAY_LOGS,
            LOG_DIRECTORY_FREE_BYTES,
            LOG_DIRECTORY_FULL,
            FLUSH_SECONDS,
        ),
    ),
    Section(
        "Replication",
        "Only partitions with several replicas count. A follower is named by its broker's id.",
        (
            PARTITIONS_UNDER_REPLICATED,
            PARTITIONS_AT_MINIMUM,
            PARTITIONS_BELOW_MINIMUM,
            PARTITIONS_OFFLINE,
            CONTROLLER_ACTIVE,
            DEAD_SESSIONS_ENDED,
            LEADERSHIPS_BEGUN,
            ISR_SHRINKS,
            ISR_EXPANSIONS,
            REPLICATION_LAG_RECORDS,
            REPLICATION_LAG_SECONDS,
        ),
    ),
    Section(
        "Compaction",
        "Absent with `log.cleaner.enable=false`.",
        (
            CLEANER_RUNNING,
            CLEANER_PASSES,
            CLEANER_READ_BYTES,
            CLEANER_WRITTEN_BYTES,
            CLEANER_REPLACED_SEGMENTS,
            CLEANER_DIRTY_RATIO,
            CLEANER_DAMAGED_PARTITIONS,
        ),
    ),
    Section(
        "Groups",
        "Offsets and lag are shown for groups that this broker coordinates and partitions that it leads. If the next "
        "record of a group was deleted, its lag is counted from the start of the log; if its committed offset is "
        "beyond the end (the topic was recreated), it has no lag. A group that nobody uses any more keeps its lag "
        "until its offsets expire, or `barnabas group delete` removes it.",
        (
            GROUPS,
            GROUP_REBALANCES,
            GROUP_OFFSET_COMMITS,
            GROUP_OFFSETS_EXPIRED,
            GROUP_LOAD_SECONDS,
            GROUP_COMMITTED_OFFSET,
            GROUP_LAG_RECORDS,
            GROUP_LAG_SECONDS,
            GROUP_LAG_UNMEASURED,
        ),
    ),
)

METRICS: Final = tuple(metric for section in SECTIONS for metric in section.metrics)
