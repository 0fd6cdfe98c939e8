"""What a query asks of a cluster before it reads: which partitions there are, and which offsets its bounds mean."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from barnabas.base.errors import InvalidSetting
from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.client.errors import UnknownTopic
from barnabas.client.metadata import ClusterView
from barnabas.client.offsets import EARLIEST, LATEST, Isolation, end_offsets, list_offsets, start_offsets
from barnabas.net.errors import NetworkFailed
from barnabas.spark.offsets import PartitionOffsets
from barnabas.spark.options import AtOffsets, AtTime, AtTimes, Everywhere, SourceOptions, TopicChoice
from barnabas.wire.errors import KafkaError

_LOG = logging.getLogger(__name__)

_Result = TypeVar("_Result")


async def with_retries(options: SourceOptions, attempt: Callable[[], Awaitable[_Result]]) -> _Result:
    """The result of an attempt, of as many as `fetchOffset.numRetries` allows."""
    for _ in range(options.lookup_tries):
        try:
            return await attempt()
        except UnknownTopic:
            raise
        except (KafkaError, NetworkFailed) as error:
            _LOG.warning("offsets could not be looked up, trying again: %s", error)
            await asyncio.sleep(options.lookup_pause_ms / 1000)
    return await attempt()


async def find_partitions(cluster: Cluster, subscription: TopicChoice) -> list[TopicPartition]:
    """Those that exist now, in order. A topic or partition that does not exist is left out.

    A pattern may match anywhere in a name, as in Spark's Kafka connector: with `^` and `$` it means whole names.
    """
    if subscription.pattern is not None:
        pattern = re.compile(subscription.pattern)
        view = await _refresh(cluster, None)
        topics = [name for name, topic in view.topics.items() if pattern.search(name) and not topic.is_internal]
    else:
        wanted = subscription.topics or tuple({partition.topic for partition in subscription.partitions})
        view = await _refresh(cluster, wanted)
        topics = [name for name in wanted if name in view.topics]
    found = [TopicPartition(name, one.index) for name in topics for one in view.topics[name].partitions]
    if subscription.partitions:
        found = [partition for partition in found if partition in subscription.partitions]
    return sorted(found)


async def _refresh(cluster: Cluster, topics: Collection[str] | None) -> ClusterView:
    """With patience, so that a query outlives the restart of a broker."""
    return await cluster.retry("the topics could not be looked up", lambda: cluster.refresh(topics))


async def find_all_partitions(cluster: Cluster, subscription: TopicChoice) -> list[TopicPartition]:
    """UnknownTopic when something that is named is not there."""
    found = await find_partitions(cluster, subscription)
    for topic in subscription.topics:
        cluster.view.topic(topic)
    for partition in subscription.partitions:
        cluster.view.partition(partition)
    if not found and subscription.pattern is not None:
        _LOG.warning("no topic matches %s yet", subscription.pattern)
    return found


async def resolve_start(
    cluster: Cluster,
    options: SourceOptions,
    partitions: Collection[TopicPartition],
    on_loss: Callable[[str], None],
) -> PartitionOffsets:
    """The offsets to start at. `on_loss` is called for given offsets that the log does not have."""
    isolation = options.reading.isolation
    start = options.start
    if isinstance(start, AtTime | AtTimes):
        times = _times(start, partitions, "starting")
        listed = await list_offsets(cluster, times, isolation)
        late = [partition for partition, offset in listed.items() if offset is None]
        if late and not options.is_latest_when_no_time_matches:
            raise InvalidSetting(
                f"{', '.join(map(str, late))} has no record at or after the starting time; set the option "
                "'startingOffsetsByTimestampStrategy' to latest to begin after the last record in that case"
            )
        ends = await end_offsets(cluster, late, isolation) if late else {}
        return {one: ends[one] if offset is None else offset.offset for one, offset in listed.items()}
    offsets = await _resolve_places(cluster, start, partitions, isolation, "startingOffsets")
    if isinstance(start, AtOffsets):
        first, last = await start_offsets(cluster, partitions), await end_offsets(cluster, partitions, isolation)
        for partition, offset in sorted(offsets.items()):
            if not first[partition] <= offset <= last[partition]:
                kept = f"from {first[partition]} to {last[partition]}"
                on_loss(f"{partition}: 'startingOffsets' says {offset}, but the log has offsets {kept}")
                offsets[partition] = min(max(offset, first[partition]), last[partition])
    return offsets


async def resolve_end(
    cluster: Cluster, options: SourceOptions, partitions: Collection[TopicPartition]
) -> PartitionOffsets:
    isolation = options.reading.isolation
    if isinstance(options.end, AtTime | AtTimes):
        listed = await list_offsets(cluster, _times(options.end, partitions, "ending"), isolation)
        ends = await end_offsets(cluster, partitions, isolation)
        return {one: ends[one] if offset is None else offset.offset for one, offset in listed.items()}
    return await _resolve_places(cluster, options.end, partitions, isolation, "endingOffsets")


async def _resolve_places(
    cluster: Cluster,
    bound: Everywhere | AtOffsets,
    partitions: Collection[TopicPartition],
    isolation: Isolation,
    option: str,
) -> PartitionOffsets:
    if isinstance(bound, Everywhere):
        given: dict[TopicPartition, Offset] = dict.fromkeys(partitions, bound.place)
    else:
        _check_all_named(bound.offsets, partitions, option, "; use -1 for the latest and -2 for the earliest")
        given = dict(bound.offsets)
    latest = [partition for partition, offset in given.items() if offset == LATEST]
    earliest = [partition for partition, offset in given.items() if offset == EARLIEST]
    if latest:
        given.update(await end_offsets(cluster, latest, isolation))
    if earliest:
        given.update(await start_offsets(cluster, earliest))
    return given


def _times(bound: AtTime | AtTimes, partitions: Collection[TopicPartition], which: str) -> dict[TopicPartition, int]:
    if isinstance(bound, AtTime):
        return dict.fromkeys(partitions, bound.timestamp_ms)
    _check_all_named(bound.timestamps_ms, partitions, f"{which}OffsetsByTimestamp", "")
    return dict(bound.timestamps_ms)


def _check_all_named(
    given: Mapping[TopicPartition, int], partitions: Collection[TopicPartition], option: str, advice: str
) -> None:
    missing, extra = sorted(set(partitions) - set(given)), sorted(set(given) - set(partitions))
    problems = []
    if missing:
        problems.append(f"does not name {', '.join(map(str, missing))}")
    if extra:
        problems.append(f"names {', '.join(map(str, extra))}, which is not read")
    if problems:
        raise InvalidSetting(f"option '{option}' {' and '.join(problems)}{advice}")


async def latest_offsets(
    cluster: Cluster, options: SourceOptions, partitions: Collection[TopicPartition]
) -> PartitionOffsets:
    """The ends of these partitions, without those that went meanwhile."""
    try:
        return await end_offsets(cluster, partitions, options.reading.isolation) if partitions else {}
    except UnknownTopic:
        remaining = set(await find_partitions(cluster, options.subscription)) & set(partitions)
        if remaining == set(partitions):
            raise
        return await latest_offsets(cluster, options, sorted(remaining))
