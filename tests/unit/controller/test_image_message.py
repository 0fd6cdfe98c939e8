"""The image on its way between brokers: nothing is lost but what the version has no field for."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from barnabas.controller.following import take_answer
from barnabas.controller.history import ImageHistory
from barnabas.controller.image_message import changes_in, values_of
from barnabas.metadata.image import (
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRemoved,
    Change,
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
from barnabas.wire.errors import MalformedResponse
from barnabas.wire.image_messages import FETCH_IMAGE_RESPONSES, FetchImageResponseV0, FetchImageResponseV2
from barnabas.wire.reader import message_reader
from barnabas.wire.steps import finish
from barnabas.wire.values import write_values

ID = UUID(int=7)
ENDPOINTS = (Endpoint("PLAINTEXT", "PLAINTEXT", "klamm", 9092), Endpoint("INSIDE", "SSL", "::1", 9093))
OLD = Partition(1, (1, 2), leader=2, leader_epoch=3, isr=(2,), partition_epoch=4, isr_epochs=(99,))
NEW = Partition(0, (1, 2), (2,), (1,), 1, 5, (1, 2), 6, True, (98, 99), (3,), (97,), 2, (2, 4), (99, 96))

IN_ORDER: list[Change] = [
    ControllerChanged(2),
    BrokerChanged(RegisteredBroker(1, 98, ENDPOINTS, "east", 90, 80)),
    BrokerRemoved(1),
    BrokerChanged(RegisteredBroker(2, 99, ())),
    TopicChanged(Topic("orders", ID, (NEW, OLD))),
    TopicRemoved("orders"),
    TopicChanged(Topic("orders", UUID(int=8), (NEW, OLD))),
    PartitionsChanged("orders", UUID(int=8), (OLD,)),
    TopicConfigsChanged("orders", {"retention.ms": "1"}),
    TopicConfigsChanged("orders", {}),
    BrokerConfigsChanged(None, {"log.cleaner.threads": "2"}),
    BrokerConfigsChanged(1, {}),
]


def carried(schema: type, changes: list[Change]) -> list[Change]:
    answer, _ = message_reader(schema)(write_values(schema, values_of(changes)), 0)
    return finish(changes_in(answer))


def test_newest_version_carries_everything_in_order() -> None:
    assert carried(FetchImageResponseV2, IN_ORDER) == IN_ORDER


def test_older_version_carries_what_it_knows() -> None:
    plain = Partition(0, (1, 2), (2,), (1,), 1, 5, (1, 2), 6, True, (98, 99))
    expected = [
        BrokerChanged(RegisteredBroker(1, 98, ENDPOINTS, "east")),
        TopicChanged(Topic("orders", ID, (plain, OLD))),
    ]
    found = carried(FetchImageResponseV0, IN_ORDER)
    assert found[1] == expected[0]
    assert found[4] == expected[1]
    assert len(found) == len(IN_ORDER)


@pytest.mark.parametrize("schema", FETCH_IMAGE_RESPONSES)
def test_without_changes_it_says_who_the_controller_is(schema: type) -> None:
    assert carried(schema, []) == [ControllerChanged(None)]
    assert carried(schema, [ControllerChanged(0)]) == [ControllerChanged(0)]


@pytest.mark.parametrize(
    "damage",
    [
        {"numbers": (0,)},
        {"numbers": ()},
        {"counts": (2, 0, 0, 2, 0, 2)},
        {"counts": (2, 0, 0, 2, 0, 2, 1)},
        {"counts": (2, 2, 1, 0, 1, 0, 2, 1, 1, 0, 2, 2, 1, 0)},
        {"counts": (2, 2, 1, 0, 1, 0, 4, -1, 1, 0, 2, 1, 1, 0)},
        {"brokers": (1, 2)},
        {"epochs": ()},
        {"offline_places": (0,)},
        {"offline_places": (0, 2)},
        None,
    ],
)
def test_columns_that_do_not_fit_together_are_malformed(damage: dict[str, Any] | None) -> None:
    """The partitions of one topic are two, with an ISR of 2 and of 1; None leaves the topic without its block."""
    values = values_of([ControllerChanged(2), TopicChanged(Topic("orders", ID, (NEW, OLD)))])
    answer, _ = message_reader(FetchImageResponseV2)(write_values(FetchImageResponseV2, values), 0)
    blocks = () if damage is None else (replace(answer.blocks[0], **damage),)

    async def take() -> None:
        history = ImageHistory()
        whole = replace(answer, controller_epoch=1, position=1, is_whole=True)
        await take_answer(history, history.place, whole, 1)
        assert history.image.topics["orders"].partitions == (NEW, OLD)
        with pytest.raises(MalformedResponse):
            await take_answer(history, history.place, replace(whole, position=2, blocks=blocks), 1)
        assert history.place.position == 1

    asyncio.run(take())
