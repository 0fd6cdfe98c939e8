"""Configs of topics and brokers: read, changed and written back unless another writer changed them meanwhile.

Values are texts; the caller checks them. They reach every broker with the controller's image; the notifications that
Kafka's brokers follow (`/config/changes`) are not written.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from barnabas.controller.controllership import Controllership
from barnabas.metadata.errors import BadVersion, NodeExists, NoNode
from barnabas.metadata.store import Check, Create, Operation, SetData
from barnabas.metadata.znodes import (
    TopicAssignment,
    broker_config_path,
    decode_configs,
    encode_configs,
    topic_config_path,
)
from barnabas.wire.errors import ErrorCode, KafkaError

_ATTEMPTS_MAX: Final = 16

ConfigUpdate: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, str]]
"""From the configs that are set to those that shall be. May be called more than once, and may raise to refuse."""


async def update_topic_configs(controllership: Controllership, topic: str, update: ConfigUpdate) -> None:
    await _update(controllership, topic_config_path(topic), update, topic)


async def update_broker_configs(controllership: Controllership, broker_id: int | None, update: ConfigUpdate) -> None:
    """None changes the defaults for every broker."""
    await _update(controllership, broker_config_path(broker_id), update, None)


async def _update(controllership: Controllership, path: str, update: ConfigUpdate, topic: str | None) -> None:
    store = controllership.store
    # The topic must still be there: configs of one that was deleted meanwhile would wait for the next of its name.
    guards = [] if topic is None else [Check(TopicAssignment.path_of(topic))]
    for _ in range(_ATTEMPTS_MAX):
        if topic is not None and await store.exists(TopicAssignment.path_of(topic)) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{topic}'")
        [node] = await store.get_many([path])
        before = {} if node is None else decode_configs(path, node.data)
        after = update(before)
        if after == before:
            return
        data = encode_configs(after)
        write: Operation = Create(path, data) if node is None else SetData(path, data, node.stat.version)
        try:
            await controllership.multi([*guards, write])
        except (BadVersion, NodeExists, NoNode):
            continue
        return
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{path} was changed by others at the same time: try again")
