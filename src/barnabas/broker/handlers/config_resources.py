"""What has settings: the types of resources, by Kafka's numbers, and how they are named."""

from enum import IntEnum

from barnabas.wire.errors import ErrorCode, KafkaError


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def check_own_id(broker_id: int, name: str) -> None:
    """A broker answers for itself only."""
    if not (name.isascii() and name.removeprefix("-").isdigit()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a broker is named by its number, not '{name}'")
    if int(name) != broker_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {broker_id}, not {name}")
