"""How a leader asks the controller for another ISR: by a local call on the controller's own broker, else by a request.

An answer is final: what it refuses was not written and will not be. When there is no answer nobody knows whether the
request was, or still will be, carried out: then this raises.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from barnabas.controller.alterations import AskedIsr
from barnabas.controller.broker_link import BrokerLink
from barnabas.controller.seat import ControllerSeat
from barnabas.wire.apis import ALL_APIS, ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError, MalformedResponse

__all__ = ("AskedIsr", "alter_partitions")

_VERSION: Final = ALL_APIS[ApiKey.ALTER_PARTITION].version_max
_ANSWER_SECONDS: Final = 30.0
_REFUSALS: Final = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
"""Of a request as a whole: nothing of it was written."""


async def alter_partitions(seat: ControllerSeat, asked: Sequence[AskedIsr]) -> list[ErrorCode]:
    """What became of each, in the order of what is asked.

    `NetworkFailed`, `MalformedResponse` or KafkaError(NOT_CONTROLLER) when nobody knows, or there is no controller.
    """
    try:
        if seat.control_link is not None:
            return await _ask(seat.control_link, seat.broker_id, seat.broker_epoch, asked)
        answers = await seat.require_controller().alter_partitions(seat.broker_id, seat.broker_epoch, asked)
    except KafkaError as error:
        if error.code in _REFUSALS:
            return [error.code] * len(asked)
        raise
    return [answer.error_code for answer in answers]


async def _ask(link: BrokerLink, broker_id: int, broker_epoch: int, asked: Sequence[AskedIsr]) -> list[ErrorCode]:
    topics: dict[UUID, list[AskedIsr]] = {}
    for one in asked:
        topics.setdefault(one.topic_id, []).append(one)
    values = {"broker_id": broker_id, "broker_epoch": broker_epoch, "topics": _topics(topics)}
    answer = await link.ask(ApiKey.ALTER_PARTITION, _VERSION, values, _ANSWER_SECONDS)
    code = ErrorCode.of(answer.error_code.value)
    if code is not ErrorCode.NONE:
        raise KafkaError(
            code if code in _REFUSALS else ErrorCode.NOT_CONTROLLER, f"{link.name} alters no partitions: {code.name}"
        )
    codes = {
        (topic.topic_id, one.partition_index): ErrorCode.of(one.error_code.value)
        for topic in answer.topics
        for one in topic.partitions
    }
    try:
        return [codes[one.topic_id, one.index] for one in asked]
    except KeyError:
        raise MalformedResponse(f"{link.name} does not answer all that was asked") from None


def _topics(topics: Mapping[UUID, Sequence[AskedIsr]]) -> Iterator[Mapping[str, Any]]:
    for topic_id, asked in topics.items():
        yield {
            "topic_id": topic_id,
            "partitions": [
                {
                    "partition_index": one.index,
                    "leader_epoch": one.leader_epoch,
                    "new_isr_with_epochs": [
                        {"broker_id": broker_id, "broker_epoch": epoch} for broker_id, epoch in one.isr.items()
                    ],
                    "leader_recovery_state": 0,
                    "partition_epoch": one.partition_epoch,
                }
                for one in asked
            ],
        }
