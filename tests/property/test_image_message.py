"""Any image, and any changes of it, mean the same in every version of FetchImage, as far as the version goes."""

from typing import Any
from unittest.mock import patch
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller import image_message
from barnabas.controller.image_message import changes_in, values_of, whole_values_of
from barnabas.metadata.image import (
    BrokerChanged,
    BrokerConfigsChanged,
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
from barnabas.wire.image_messages import FETCH_IMAGE_RESPONSES
from barnabas.wire.reader import message_reader
from barnabas.wire.steps import finish
from barnabas.wire.values import write_values

VERSIONS = range(len(FETCH_IMAGE_RESPONSES))
int32 = st.integers(-(2**31), 2**31 - 1)
brokers = st.lists(int32, max_size=3).map(tuple)
epochs = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3).map(tuple)
offline = st.just(()) | st.lists(st.tuples(int32, st.integers(0, 2**63 - 1)), max_size=2).map(tuple)
in_version_1 = st.builds(
    Partition,
    st.just(0),
    replicas=brokers,
    adding=brokers,
    removing=brokers,
    leader=int32,
    leader_epoch=int32,
    isr=brokers,
    partition_epoch=int32,
    is_recovering=st.booleans(),
    isr_epochs=epochs,
    elr=brokers,
    elr_epochs=epochs,
    min_insync_replicas=st.none() | st.integers(1, 2**31 - 1),
)
partitions = st.builds(
    lambda one, replicas: one._replace(
        offline=tuple([broker for broker, _ in replicas]), offline_epochs=tuple([epoch for _, epoch in replicas])
    ),
    in_version_1,
    offline,
)
ids = st.integers(1, 2**128 - 1).map(lambda number: UUID(int=number))
names = st.text("ab", min_size=1, max_size=4)


def numbered(found: list[Partition]) -> tuple[Partition, ...]:
    return tuple(one._replace(index=index) for index, one in enumerate(found))


topics = st.builds(Topic, names, ids, st.lists(partitions, max_size=9).map(numbered))
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(TopicChanged, topics),
    st.builds(PartitionsChanged, names, ids, st.lists(partitions, max_size=4).map(numbered)),
    st.builds(TopicRemoved, names),
)
configs = st.dictionaries(names, names, min_size=1, max_size=2)
registered = st.builds(
    RegisteredBroker,
    st.integers(0, 9),
    st.integers(0, 2**63 - 1),
    st.lists(st.builds(Endpoint, names, names, names, int32), max_size=2).map(tuple),
    st.none() | names,
    st.none() | st.integers(0, 9),
    st.none() | st.integers(0, 9),
)
parts: st.SearchStrategy[Change] = st.one_of(
    st.builds(TopicChanged, topics),
    st.builds(BrokerChanged, registered),
    st.builds(TopicConfigsChanged, names, configs),
    st.builds(BrokerConfigsChanged, st.none() | st.integers(0, 9), configs),
    st.builds(ControllerChanged, st.none() | st.integers(0, 9)),
)
images = st.lists(parts, max_size=12).map(ClusterImage().apply)


def carried(version: int, values: dict[str, Any], block_length: int) -> list[Change]:
    schema = FETCH_IMAGE_RESPONSES[version]
    with patch.object(image_message, "_BLOCK_LENGTH", block_length):
        encoded = write_values(schema, values)
    answer, position = message_reader(schema)(encoded, 0)
    assert position == len(encoded)
    return finish(changes_in(answer))


def as_version(version: int, change: Change) -> Change:
    """Without what it has no field for."""
    match change:
        case TopicChanged(topic):
            return TopicChanged(Topic(topic.name, topic.id, _plain(version, topic.partitions)))
        case PartitionsChanged(name, topic_id, changed):
            return PartitionsChanged(name, topic_id, _plain(version, changed))
        case BrokerChanged(broker) if version < 1:
            return BrokerChanged(RegisteredBroker(broker.id, broker.epoch, broker.endpoints, broker.rack))
    return change


def _plain(version: int, found: tuple[Partition, ...]) -> tuple[Partition, ...]:
    if version < 2:
        found = tuple(one._replace(offline=(), offline_epochs=()) for one in found)
    if version < 1:
        found = tuple(one._replace(elr=(), elr_epochs=(), min_insync_replicas=None) for one in found)
    return found


@given(st.sampled_from(VERSIONS), st.lists(changes, max_size=8), st.integers(1, 5))
def test_each_version_carries_the_changes_as_it_knows_them(version: int, made: list[Change], block_length: int) -> None:
    assert carried(version, values_of(made), block_length)[1:] == [as_version(version, change) for change in made]


@given(st.sampled_from(VERSIONS), images, st.integers(1, 5))
def test_each_version_carries_the_image_as_it_knows_it(version: int, image: ClusterImage, block_length: int) -> None:
    expected = ClusterImage().apply([as_version(version, change) for change in image.as_changes()])
    assert ClusterImage().apply(carried(version, whole_values_of(image), block_length)) == expected
