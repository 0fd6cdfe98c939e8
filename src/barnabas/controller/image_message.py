"""Changes of the image as FetchImage carries them (`barnabas.wire.image_messages`), and back. Pure.

The message has an array for each kind of thing, in which the order of the changes is kept; what is in one array does
not depend on another. Who reads a version that lacks a field has its default: nothing is known about it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

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
from barnabas.wire.values import Values

_NO_ID: Final = -1


def values_of(changes: Iterable[Change]) -> dict[str, Any]:
    """The arrays of an answer."""
    arrays: dict[str, list[Values]] = {"brokers": [], "topics": [], "topic_configs": [], "broker_configs": []}
    values: dict[str, Any] = {**arrays}
    for change in changes:
        match change:
            case BrokerChanged(broker):
                arrays["brokers"].append(_broker_values(broker))
            case BrokerRemoved(broker_id):
                arrays["brokers"].append({"broker_id": broker_id, "epoch": _NO_ID, "rack": None, "endpoints": ()})
            case TopicChanged(topic):
                arrays["topics"].append(_topic_values(topic.name, topic.id, topic.partitions, is_whole=True))
            case PartitionsChanged(name, topic_id, partitions):
                arrays["topics"].append(_topic_values(name, topic_id, partitions, is_whole=False))
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
        "topic_configs": (
            {"name": name, "configs": _config_values(configs)} for name, configs in image.topic_configs.items()
        ),
        "broker_configs": (
            {"broker_id": _NO_ID if owner is None else owner, "configs": _config_values(configs)}
            for owner, configs in image.broker_configs.items()
        ),
    }


def changes_in(answer: Any) -> Iterator[Change]:
    """What an answer says, in any version of the message."""
    yield ControllerChanged(None if answer.controller_id == _NO_ID else answer.controller_id)
    for broker in answer.brokers:
        yield BrokerRemoved(broker.broker_id) if broker.epoch == _NO_ID else BrokerChanged(_broker(broker))
    for topic in answer.topics:
        if topic.topic_id is None:
            yield TopicRemoved(topic.name)
            continue
        partitions = tuple([_partition(one) for one in topic.partitions])
        if topic.is_whole:
            yield TopicChanged(Topic(topic.name, topic.topic_id, partitions))
        else:
            yield PartitionsChanged(topic.name, topic.topic_id, partitions)
    for one in answer.topic_configs:
        yield TopicConfigsChanged(one.name, _configs(one.configs))
    for one in answer.broker_configs:
        yield BrokerConfigsChanged(None if one.broker_id == _NO_ID else one.broker_id, _configs(one.configs))


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
        "partitions": (_partition_values(one) for one in partitions),
    }


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
        "elr": partition.elr,
        "elr_epochs": partition.elr_epochs,
        "min_insync_replicas": _NO_ID if partition.min_insync_replicas is None else partition.min_insync_replicas,
    }


def _partition(message: Any) -> Partition:
    minimum = getattr(message, "min_insync_replicas", _NO_ID)
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
        getattr(message, "elr", ()),
        getattr(message, "elr_epochs", ()),
        None if minimum == _NO_ID else minimum,
    )


def _config_values(configs: Mapping[str, str]) -> list[Values]:
    return [{"name": name, "value": value} for name, value in configs.items()]


def _configs(messages: Iterable[Any]) -> dict[str, str]:
    return {one.name: one.value for one in messages}
