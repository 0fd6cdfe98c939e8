"""Changes of the image as FetchImage carries them (`barnabas.wire.image_messages`), and back. Pure.

The message has an array for each kind of thing, in which the order of the changes is kept; what is in one array does
not depend on another. Who reads a version that lacks a field has its default: nothing is known about it.

Partitions are given for all versions: as messages, and as blocks of columns. The writer takes what its version has.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice, pairwise, repeat
from typing import Any, Final

from barnabas.base.named_tuples import new_tuple
from barnabas.metadata.image import (
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRemoved,
    Change,
    ClusterImage,
    ControllerChanged,
    Partition,
    PartitionsChanged,
    RegisteredBroker,
    Topic,
    TopicChanged,
    TopicConfigsChanged,
    TopicRemoved,
)
from barnabas.metadata.znodes import Endpoint
from barnabas.wire.steps import Steps
from barnabas.wire.values import Values

_NO_ID: Final = -1
_BLOCK_LENGTH: Final = 128
"""Partitions of a block, which is written at once: less than a millisecond."""
_LISTS: Final = ("replicas", "adding", "removing", "isr", "isr_epochs", "elr", "elr_epochs")
"""The fields of a partition that are lists."""


def values_of(changes: Iterable[Change]) -> dict[str, Any]:
    """The arrays of an answer."""
    arrays: dict[str, list[Values]] = {"brokers": [], "topics": [], "topic_configs": [], "broker_configs": []}
    partitions: list[Sequence[Partition]] = []
    values: dict[str, Any] = {**arrays, "blocks": _block_values(chain.from_iterable(partitions))}
    for change in changes:
        match change:
            case BrokerChanged(broker):
                arrays["brokers"].append(_broker_values(broker))
            case BrokerRemoved(broker_id):
                arrays["brokers"].append({"broker_id": broker_id, "epoch": _NO_ID, "rack": None, "endpoints": ()})
            case TopicChanged(topic):
                arrays["topics"].append(_topic_values(topic.name, topic.id, topic.partitions, is_whole=True))
                partitions.append(topic.partitions)
            case PartitionsChanged(name, topic_id, changed):
                arrays["topics"].append(_topic_values(name, topic_id, changed, is_whole=False))
                partitions.append(changed)
            case TopicRemoved(name):
                arrays["topics"].append(_topic_values(name, None, (), is_whole=True))
            case TopicConfigsChanged(name, configs):
                arrays["topic_configs"].append({"name": name, "configs": _config_values(configs)})
            case BrokerConfigsChanged(owner, configs):
                broker_id = _NO_ID if owner is None else owner
                arrays["broker_configs"].append({"broker_id": broker_id, "configs": _config_values(configs)})
            case ControllerChanged(controller_id):
                values["controller_id"] = _NO_ID if controller_id is None else controller_id
    return values


def whole_values_of(image: ClusterImage) -> dict[str, Any]:
    """The arrays of an answer with everything. Each element is made when it is written."""
    return {
        "controller_id": _NO_ID if image.controller_id is None else image.controller_id,
        "brokers": map(_broker_values, image.brokers.values()),
        "topics": (_topic_values(one.name, one.id, one.partitions, is_whole=True) for one in image.topics.values()),
        "blocks": _block_values(chain.from_iterable(one.partitions for one in image.topics.values())),
        "topic_configs": (
            {"name": name, "configs": _config_values(configs)} for name, configs in image.topic_configs.items()
        ),
        "broker_configs": (
            {"broker_id": _NO_ID if owner is None else owner, "configs": _config_values(configs)}
            for owner, configs in image.broker_configs.items()
        ),
    }


def changes_in(answer: Any) -> Steps[list[Change]]:
    """What an answer says, in any version of the message, with pauses. ValueError when its columns do not fit."""
    changes: list[Change] = [ControllerChanged(None if answer.controller_id == _NO_ID else answer.controller_id)]
    for broker in answer.brokers:
        changes.append(BrokerRemoved(broker.broker_id) if broker.epoch == _NO_ID else BrokerChanged(_broker(broker)))
        yield
    in_blocks: list[Partition] = []
    for block in getattr(answer, "blocks", ()):
        in_blocks += _block(block)
        yield
    rest = iter(in_blocks)
    for topic in answer.topics:
        changes.append(_topic_change(topic, rest))
        yield
    for one in answer.topic_configs:
        changes.append(TopicConfigsChanged(one.name, _configs(one.configs)))
        yield
    for one in answer.broker_configs:
        owner = None if one.broker_id == _NO_ID else one.broker_id
        changes.append(BrokerConfigsChanged(owner, _configs(one.configs)))
        yield
    return changes


def _topic_change(topic: Any, rest: Iterator[Partition]) -> Change:
    if topic.topic_id is None:
        return TopicRemoved(topic.name)
    partitions = _partitions(topic, rest)
    if topic.is_whole:
        return TopicChanged(Topic(topic.name, topic.topic_id, partitions))
    return PartitionsChanged(topic.name, topic.topic_id, partitions)


def _broker_values(broker: RegisteredBroker) -> Values:
    return {
        "broker_id": broker.id,
        "epoch": broker.epoch,
        "rack": broker.rack,
        "endpoints": [
            {"listener": one.listener, "protocol": one.security_protocol, "host": one.host, "port": one.port}
            for one in broker.endpoints
        ],
        "previous_epoch": _NO_ID if broker.previous_epoch is None else broker.previous_epoch,
        "intact_since": _NO_ID if broker.intact_since is None else broker.intact_since,
    }


def _broker(message: Any) -> RegisteredBroker:
    previous, intact = getattr(message, "previous_epoch", _NO_ID), getattr(message, "intact_since", _NO_ID)
    return RegisteredBroker(
        message.broker_id,
        message.epoch,
        tuple([Endpoint(one.listener, one.protocol, one.host, one.port) for one in message.endpoints]),
        message.rack,
        None if previous == _NO_ID else previous,
        None if intact == _NO_ID else intact,
    )


def _topic_values(name: str, topic_id: Any, partitions: Sequence[Partition], *, is_whole: bool) -> Values:
    return {
        "name": name,
        "topic_id": topic_id,
        "is_whole": is_whole,
        "partition_count": len(partitions),
        "partitions": map(_partition_values, partitions),
    }


def _partitions(topic: Any, rest: Iterator[Partition]) -> tuple[Partition, ...]:
    """Those of a topic: its own messages, or the next ones of the blocks."""
    if hasattr(topic, "partitions"):
        return tuple([_partition(one) for one in topic.partitions])
    partitions = tuple(islice(rest, topic.partition_count))
    if len(partitions) != topic.partition_count:
        raise ValueError(f"{topic.name} has {topic.partition_count} partitions, and the blocks have no more of them")
    return partitions


def _block_values(partitions: Iterable[Partition]) -> Iterator[Values]:
    iterator = iter(partitions)
    while together := list(islice(iterator, _BLOCK_LENGTH)):
        columns = dict(zip(Partition._fields, zip(*together, strict=True), strict=True))
        minimums = [_NO_ID if one is None else one for one in columns["min_insync_replicas"]]
        values: dict[str, Any] = {**columns, "min_insync_replicas": minimums}
        for name in _LISTS:
            values[f"{name}_counts"], values[name] = _flattened(columns[name])
        yield values


def _flattened(lists: Sequence[tuple[int, ...]]) -> tuple[Sequence[int], Sequence[int]]:
    """Their lengths, or the one that all of them have; and their numbers."""
    if not any(lists):
        return (0,), ()
    lengths = tuple(map(len, lists))
    return lengths if len(set(lengths)) > 1 else lengths[:1], tuple(chain.from_iterable(lists))


def _block(message: Any) -> Iterator[Partition]:
    minimums = [None if one == _NO_ID else one for one in message.min_insync_replicas]
    columns: dict[str, Iterable[Any]] = {"min_insync_replicas": minimums}
    for name in _LISTS:
        columns[name] = _lists(getattr(message, f"{name}_counts"), getattr(message, name), len(minimums))
    rows = zip(*[columns.get(name) or getattr(message, name) for name in Partition._fields], strict=True)
    return map(new_tuple, repeat(Partition), rows)


def _lists(counts: Sequence[int], numbers: Sequence[int], length: int) -> Sequence[tuple[int, ...]]:
    if len(counts) == 1 and counts[0] * length != len(numbers):
        raise ValueError(f"{length} lists of {counts[0]} numbers are not {len(numbers)} numbers")
    if len(counts) == 1:
        return [*zip(*[iter(numbers)] * counts[0], strict=True)] if counts[0] else [()] * length
    ends = [0, *accumulate(counts)]
    if ends[-1] != len(numbers) or min(counts) < 0:
        raise ValueError(f"lists of {ends[-1]} numbers are not {len(numbers)} numbers")
    return [tuple(numbers[start:end]) for start, end in pairwise(ends)]


def _partition_values(partition: Partition) -> Values:
    return {
        "index": partition.index,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "is_recovering": partition.is_recovering,
        "replicas": partition.replicas,
        "adding": partition.adding,
        "removing": partition.removing,
        "isr": partition.isr,
        "isr_epochs": partition.isr_epochs,
    }


def _partition(message: Any) -> Partition:
    """Of version 0, which knows nothing of eligible replicas and of the minimum in force."""
    return Partition(
        message.index,
        message.replicas,
        message.adding,
        message.removing,
        message.leader,
        message.leader_epoch,
        message.isr,
        message.partition_epoch,
        message.is_recovering,
        message.isr_epochs,
    )


def _config_values(configs: Mapping[str, str]) -> list[Values]:
    return [{"name": name, "value": value} for name, value in configs.items()]


def _configs(messages: Iterable[Any]) -> dict[str, str]:
    return {one.name: one.value for one in messages}
