"""What a broker shows of its parts: numbers that they keep anyway, under the names of `barnabas.base.metric_table`.

What is counted for the metrics alone is elsewhere: `request_measures`, `barnabas.groups.measures`.
"""

import platform
from collections.abc import Callable, Iterator
from operator import attrgetter

import barnabas
from barnabas.base import metric_table as table
from barnabas.base.clock import Clock
from barnabas.base.metrics import Description, Metrics, Sample
from barnabas.broker.group_lag import GroupLags
from barnabas.controller.seat import ControllerSeat
from barnabas.controller.suspecting import Suspecting
from barnabas.metadata.image import INTERNAL_TOPICS
from barnabas.metadata.znodes import NO_LEADER
from barnabas.net.counters import NetworkCounters
from barnabas.records import kernel
from barnabas.replication.leader import CommittedState, FollowerLag
from barnabas.replication.replicas import Replicas
from barnabas.storage.compaction.cleaner import LogCleaner
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.log.log import Log
from barnabas.storage.log.traffic import TopicTraffic


def measure_broker(
    metrics: Metrics,
    counters: NetworkCounters,
    replicas: Replicas,
    logs: LogManager,
    seat: ControllerSeat,
    clock: Clock,
) -> None:
    """All but the groups."""
    _measure_build(metrics)
    _measure_network(metrics, counters)
    _measure_topics(metrics, replicas)
    _measure_logs(metrics, logs)
    _measure_replication(metrics, replicas, seat, clock)
    if logs.cleaner is not None:
        _measure_cleaner(metrics, logs.cleaner)


def _measure_build(metrics: Metrics) -> None:
    values = (barnabas.__version__, platform.python_version(), "compiled" if kernel.IS_COMPILED else "python")
    metrics.readings(table.BUILD_INFO, lambda: [Sample(values, 1)])


def _measure_network(metrics: Metrics, counters: NetworkCounters) -> None:
    """Bytes, requests and connections."""
    metrics.reading(table.NETWORK_RECEIVED_BYTES, lambda: counters.bytes_in)
    metrics.reading(table.NETWORK_SENT_BYTES, lambda: counters.bytes_out)
    metrics.reading(table.REQUESTS_RECEIVED, lambda: counters.requests_in)
    metrics.reading(table.CONNECTIONS, lambda: counters.connections_open)
    metrics.reading(table.CONNECTIONS_ACCEPTED, lambda: counters.connections_accepted)
    metrics.reading(table.CONNECTIONS_REFUSED, lambda: counters.connections_refused)
    metrics.reading(table.CONNECTIONS_CLOSED_IDLE, lambda: counters.connections_closed_idle)
    metrics.reading(table.FETCH_COLD_READS, lambda: counters.ranges_loaded)


def _measure_topics(metrics: Metrics, replicas: Replicas) -> None:
    """What went in and came out, by topic."""

    def show(description: Description, value_of: Callable[[TopicTraffic], int]) -> None:
        def read() -> Iterator[Sample]:
            for topic, traffic in tuple(replicas.traffic.items()):
                if value := value_of(traffic):
                    yield Sample((topic,), value)

        metrics.readings(description, read)

    show(table.TOPIC_APPENDED_BYTES, attrgetter("appended_bytes"))
    show(table.TOPIC_APPENDED_RECORDS, attrgetter("appended_records"))
    show(table.TOPIC_SENT_BYTES, attrgetter("sent_bytes"))


def _measure_logs(metrics: Metrics, logs: LogManager) -> None:
    """Sizes and offsets by partition, and directories that failed. Of internal topics most partitions stay empty."""

    def show(description: Description, value_of: Callable[[Log], int]) -> None:
        def read() -> Iterator[Sample]:
            for log in tuple(logs):
                topic, partition = log.partition
                if log.end_offset or topic not in INTERNAL_TOPICS:
                    yield Sample((topic, str(partition)), value_of(log))

        metrics.readings(description, read)

    show(table.LOG_BYTES, attrgetter("size_bytes"))
    show(table.LOG_START_OFFSET, attrgetter("log_start_offset"))
    show(table.LOG_END_OFFSET, attrgetter("end_offset"))
    metrics.reading(table.LOG_DIRECTORIES_OFFLINE, lambda: len(logs.offline_directories))
    metrics.reading(table.STRAY_LOGS, lambda: logs.stray_count)

    def free_bytes() -> Iterator[Sample]:
        for one in logs.directories.online:
            if one.space.free_bytes is not None:
                yield Sample((one.path,), one.space.free_bytes)

    metrics.readings(table.LOG_DIRECTORY_FREE_BYTES, free_bytes)
    metrics.readings(
        table.LOG_DIRECTORY_FULL,
        lambda: [Sample((one.path,), int(one.space.refusal is not None)) for one in logs.directories.online],
    )


def _measure_replication(metrics: Metrics, replicas: Replicas, seat: ControllerSeat, clock: Clock) -> None:
    """Who is in sync, who lags; what the controller knows of partitions without a leader."""

    def count(is_one: Callable[[CommittedState], bool]) -> Callable[[], int]:
        return lambda: sum(is_one(partition.state) for partition in replicas.with_followers())

    def is_at_minimum(state: CommittedState) -> bool:
        return len(state.isr) == state.minimum < len(state.replicas)

    metrics.reading(table.PARTITIONS_UNDER_REPLICATED, count(lambda state: len(state.isr) < len(state.replicas)))
    metrics.reading(table.PARTITIONS_AT_MINIMUM, count(is_at_minimum))
    metrics.reading(table.PARTITIONS_BELOW_MINIMUM, count(lambda state: len(state.isr) < state.minimum))
    metrics.reading(table.LEADERSHIPS_BEGUN, lambda: replicas.leaderships_begun)
    metrics.reading(table.ISR_SHRINKS, lambda: replicas.isr_shrinks)
    metrics.reading(table.ISR_EXPANSIONS, lambda: replicas.isr_expansions)
    metrics.reading(table.CONTROLLER_ACTIVE, lambda: int(seat.controller is not None))
    metrics.reading(table.PARTITIONS_OFFLINE, lambda: 0 if seat.controller is None else _offline_count(seat))

    def lag(value_of: Callable[[FollowerLag], float]) -> Callable[[], Iterator[Sample]]:
        def read() -> Iterator[Sample]:
            largest: dict[int, float] = {}
            for partition in replicas.with_followers():
                for one in partition.lags(clock.steady_ms()):
                    largest[one.broker_id] = max(largest.get(one.broker_id, 0), value_of(one))
            for broker_id, value in sorted(largest.items()):
                yield Sample((str(broker_id),), value)

        return read

    metrics.readings(table.REPLICATION_LAG_RECORDS, lag(attrgetter("records")))
    metrics.readings(table.REPLICATION_LAG_SECONDS, lag(attrgetter("seconds")))


def measure_suspicion(metrics: Metrics, suspecting: Suspecting) -> None:
    metrics.reading(table.DEAD_SESSIONS_ENDED, lambda: suspecting.sessions_ended)


def _offline_count(seat: ControllerSeat) -> int:
    topics = seat.history.image.topics.values()
    return sum(one.leader == NO_LEADER for topic in topics for one in topic.partitions)


def _measure_cleaner(metrics: Metrics, cleaner: LogCleaner) -> None:
    metrics.reading(table.CLEANER_RUNNING, lambda: cleaner.running_count)
    metrics.reading(table.CLEANER_PASSES, lambda: cleaner.passes)
    metrics.reading(table.CLEANER_READ_BYTES, lambda: cleaner.totals().read_bytes)
    metrics.reading(table.CLEANER_WRITTEN_BYTES, lambda: cleaner.totals().written_bytes)
    metrics.reading(table.CLEANER_REPLACED_SEGMENTS, lambda: cleaner.totals().replaced_segments)
    metrics.reading(table.CLEANER_DIRTY_RATIO, lambda: cleaner.dirty_ratio_max)
    metrics.reading(table.CLEANER_DAMAGED_PARTITIONS, lambda: cleaner.damaged_count)


def measure_lags(metrics: Metrics, lags: GroupLags, clock: Clock) -> None:
    """As they were measured last; the time that passed since counts."""

    def committed() -> Iterator[Sample]:
        for labels, offset, _, _ in lags.lags:
            yield Sample(labels, offset)

    def records() -> Iterator[Sample]:
        for labels, _, count, _ in lags.lags:
            if count is not None:
                yield Sample(labels, count)

    def seconds() -> Iterator[Sample]:
        now_ms = clock.now_ms()
        for lag in lags.lags:
            unread_ms = lags.unread_ms(lag)
            if unread_ms is not None:
                yield Sample(lag.labels, max(0, now_ms - unread_ms) / 1000)
            elif lag.records == 0:
                yield Sample(lag.labels, 0)

    metrics.readings(table.GROUP_COMMITTED_OFFSET, committed)
    metrics.readings(table.GROUP_LAG_RECORDS, records)
    metrics.readings(table.GROUP_LAG_SECONDS, seconds)
    metrics.reading(table.GROUP_LAG_UNMEASURED, lambda: lags.unmeasured)
