"""Changes of the image as FetchImage carries them (`barnabas.wire.image_messages`), and back. Pure.

The message has an array for each kind of thing, in which the order of the changes is kept; what is in one array does
not depend on another. Who reads a version that lacks a field has its default: nothing is known about it.

Partitions are given for all versions: as messages, and as blocks of columns. The writer takes what its version has.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
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
_NUMBERS: Final = ("index", "leader", "leader_epoch", "partition_epoch", "is_recovering")
"""The fields of a partition that are columns of a block; the minimum of replicas in sync comes last."""
_BROKER_LISTS: Final = ("replicas", "adding", "removing", "isr", "elr")
_EPOCH_LISTS: Final = ("isr_epochs", "elr_epochs")
_LISTS: Final = (*_BROKER_LISTS, *_EPOCH_LISTS)
"""Those that are lists themselves."""


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
        minimums = [_NO_ID if one is None else one for one in columns.pop("min_insync_replicas")]
        lengths = [list(map(len, columns[name])) if any(columns[name]) else [0] * len(together) for name in _LISTS]
        are_alike = all(one.count(one[0]) == len(together) for one in lengths)
        yield {
            "numbers": [*chain.from_iterable(columns[name] for name in _NUMBERS), *minimums],
            "counts": [one[0] for one in lengths] if are_alike else list(chain.from_iterable(lengths)),
            "brokers": _flattened(columns[name] for name in _BROKER_LISTS),
            "epochs": _flattened(columns[name] for name in _EPOCH_LISTS),
            **_offline_values(columns["offline"], columns["offline_epochs"]),
        }


def _offline_values(brokers: Sequence[tuple[int, ...]], epochs: Sequence[tuple[int, ...]]) -> Values:
    return {
        "offline_places": [place for place, ids in enumerate(brokers) for _ in ids] if any(brokers) else (),
        "offline_brokers": _flattened([brokers]),
        "offline_epochs": _flattened([epochs]),
    }


def _flattened(columns: Iterable[Iterable[tuple[int, ...]]]) -> list[int]:
    return list(chain.from_iterable(chain.from_iterable(columns)))


def _block(message: Any) -> Iterator[Partition]:
    """ValueError when the columns do not fit together."""
    length, rest = divmod(len(message.numbers), len(_NUMBERS) + 1)
    if rest or not length:
        raise ValueError(f"{len(message.numbers)} numbers are no columns")
    numbers = [message.numbers[start : start + length] for start in range(0, len(message.numbers), length)]
    columns: dict[str, Iterable[Any]] = dict(zip(_NUMBERS, numbers, strict=False))
    columns["is_recovering"] = map(bool, columns["is_recovering"])
    columns["min_insync_replicas"] = [None if one == _NO_ID else one for one in numbers[-1]]
    by_list = 1 if len(message.counts) == len(_LISTS) else length
    lengths = [message.counts[start : start + by_list] for start in range(0, len(message.counts), by_list)]
    columns.update(_lists(_BROKER_LISTS, lengths[: len(_BROKER_LISTS)], message.brokers, length))
    columns.update(_lists(_EPOCH_LISTS, lengths[len(_BROKER_LISTS) :], message.epochs, length))
    columns["offline"], columns["offline_epochs"] = _offline(message, length)
    rows = zip(*[columns[name] for name in Partition._fields], strict=True)
    return map(new_tuple, repeat(Partition), rows)


def _offline(message: Any, length: int) -> tuple[Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]]:
    """The offline replicas of each partition, and their epochs."""
    places = getattr(message, "offline_places", ())
    brokers: list[tuple[int, ...]] = [()] * length
    epochs: list[tuple[int, ...]] = [()] * length
    if places:
        for place, broker, epoch in zip(places, message.offline_brokers, message.offline_epochs, strict=True):
            if not 0 <= place < length:
                raise ValueError(f"partition {place} of a block of {length} has an offline replica")
            brokers[place] += (broker,)
            epochs[place] += (epoch,)
    return brokers, epochs


def _lists(
    names: Sequence[str], lengths: Sequence[Sequence[int]], numbers: Sequence[int], length: int
) -> Iterator[tuple[str, Sequence[tuple[int, ...]]]]:
    """The columns of lists, cut out of their numbers."""
    position = 0
    for name, counts in zip(names, lengths, strict=True):
        if min(counts) < 0:
            raise ValueError(f"a list of {min(counts)} numbers")
        if len(counts) == 1:  # of all lists: cut without a look at each of them
            end = position + counts[0] * length
            cut = iter(numbers[position:end])
            yield name, list(zip(*[cut] * counts[0], strict=True)) if counts[0] else [()] * length
            position = end
        else:
            yield name, [tuple(numbers[position : (position := position + count)]) for count in counts]
    if position != len(numbers):
        raise ValueError(f"lists of {position} numbers are not {len(numbers)}")


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
