"""How a broker tells the controller that replicas of its own are offline, because their log directory has failed."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from barnabas.controller.seat import ControllerSeat
from barnabas.wire.apis import ALL_APIS, ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError

_VERSION: Final = ALL_APIS[ApiKey.REPORT_OFFLINE_REPLICAS].version_max
_ANSWER_SECONDS: Final = 30.0
_IMAGE_VERSION_MIN: Final = 2
"""A controller that understands no newer one of FetchImage does not know what an offline replica is."""


async def report_offline_replicas(seat: ControllerSeat, replicas: Sequence[tuple[UUID, int]]) -> None:
    """Returns when this broker's image says what the controller made of it.

    `NetworkFailed`, `MalformedResponse` or `KafkaError` when nobody does it.
    """
    link = seat.control_link
    if link is None:
        await seat.require_controller().take_offline(seat.broker_id, seat.broker_epoch, replicas)
        return
    if seat.image_version < _IMAGE_VERSION_MIN:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{link.name} is of a version that knows no offline replicas")
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in replicas:
        topics.setdefault(topic_id, []).append(index)
    values = {
        "broker_id": seat.broker_id,
        "broker_epoch": seat.broker_epoch,
        "topics": [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in topics.items()],
    }
    answer = await link.ask(ApiKey.REPORT_OFFLINE_REPLICAS, _VERSION, values, _ANSWER_SECONDS)
    code = ErrorCode.of(answer.error_code)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"{link.name} takes no report of offline replicas")
    await seat.catch_up()
