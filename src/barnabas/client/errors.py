"""Errors that a client raises to its caller, besides `KafkaError` with the code that a broker answered.

`Cluster.retry` retries `NetworkFailed` and a retriable `KafkaError` until its time is over, but not the errors here,
because waiting would not help.
"""

from collections.abc import Sequence

from barnabas.net.errors import NetworkFailed
from barnabas.wire.errors import ErrorCode, KafkaError


class ClusterUnreachable(NetworkFailed):
    """None of the addresses that are known answers."""

    def __init__(self, addresses: Sequence[str], reason: str) -> None:
        super().__init__(f"no broker answers at {', '.join(addresses)}: {reason}")
        self.addresses = tuple(addresses)
        self.reason = reason


class UnknownTopic(KafkaError):  # noqa: N818 - named as the fact that it is
    """The cluster has no such topic, or no such partition of it."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def raise_for(code: int, subject: str, message: str | None = None) -> None:
    """Raises the error that a reply carries for its subject ("topic 'orders'"), if it carries one.

    For calls that name what must exist: a missing topic is final there, not metadata that is still on its way.
    """
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopic(f"{subject} does not exist")
    if code != ErrorCode.NONE:
        raise KafkaError(ErrorCode.of(code), f"{subject}: {message}" if message else subject)
