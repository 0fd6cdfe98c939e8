"""What has settings: the types of resources, by Kafka's numbers, how they are named, and what a request wants of each.

A request may name a resource more than once, and twenty thousand times: it is looked at once.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, Protocol, TypeVar

from barnabas.base.texts import shortened
from barnabas.broker.slices import Slices
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import AlterConfigsResource


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(Protocol):
    """What a request says of one resource."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


_Resource = TypeVar("_Resource", bound=Resource)

RESOURCE_TYPES: Final = frozenset(ResourceType)
_CONFIGS_MAX: Final = 1000


def check_own_id(broker_id: int, name: str) -> None:
    """A broker answers for itself only, by its number as everybody writes it."""
    if name != str(broker_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {broker_id}, not '{shortened(name)}'")


async def grouped(slices: Slices, resources: Iterable[_Resource]) -> dict[tuple[int, str], list[_Resource]]:
    """What a request says of each resource, by type and name."""
    groups: dict[tuple[int, str], list[_Resource]] = {}
    async for one in slices.each(resources):
        groups.setdefault((one.resource_type, one.resource_name), []).append(one)
    return groups


def check_sole(given: Sequence[AlterConfigsResource]) -> None:
    """Refuses two changes of a resource, of which nobody knows which one is meant, and more settings than there are."""
    if len(given) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the request has this resource twice")
    check_count(given[0].configs)


def check_count(configs: Sequence[object]) -> None:
    if len(configs) > _CONFIGS_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"nothing has {len(configs)} settings")
