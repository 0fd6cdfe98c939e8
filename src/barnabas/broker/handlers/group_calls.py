"""What the handlers of group APIs share: asking the coordinator, waiting for its answer, and who may ask."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias
from uuid import UUID

from barnabas.base.clock import Moment
from barnabas.base.texts import shortened
from barnabas.base.uuid import ZERO_UUID
from barnabas.broker.authorizer import Operation
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.effects import Effects
from barnabas.groups.shard import Token
from barnabas.groups.state import GroupShardState
from barnabas.metadata.image import ClusterImage, Topic
from barnabas.wire.errors import ErrorCode, KafkaError

GroupCall: TypeAlias = Callable[[GroupShardState, Token, Moment], Effects]
"""A call on the state with its token and the time."""


async def ask_group(services: Services, group_id: str, call: GroupCall) -> object:
    """Waits for the group's answer; KafkaError when that is only an error."""
    coordinator = services.groups.coordinator
    shard = coordinator.shard_for(group_id)
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def answer(result: object) -> None:
        if not future.done():  # the caller may have gone
            future.set_result(result)

    shard.carry_out(call(shard.state, answer, coordinator.now()))
    result = await future
    if isinstance(result, ErrorCode) and result is not ErrorCode.NONE:
        raise KafkaError(result)
    return result


def ask_group_in_turn(
    services: Services, request: Request, group_id: str, call: GroupCall, respond: Callable[[object], None]
) -> None:
    """The same for requests that come in storms; this one has been decoded. `respond` gets the answer, or an
    `ErrorCode`, in a turn of its own: a whole group is answered at once.
    """
    turns = services.groups.turns

    def answer(result: object) -> None:
        turns.call(lambda: request.attempt(lambda: respond(result)))

    try:
        check_group(services, request, Operation.READ, group_id)
        coordinator = services.groups.coordinator
        shard = coordinator.shard_for(group_id)
        shard.carry_out(call(shard.state, answer, coordinator.now()))
    except KafkaError as error:
        answer(error.code)


def check_group(services: Services, request: Request, operation: Operation, group_id: str) -> None:
    """Refuses who may not do this, and a group without a name."""
    if not services.allows_group(request, operation, group_id):
        raise KafkaError(
            ErrorCode.GROUP_AUTHORIZATION_FAILED, f"{operation.value} is not allowed on '{shortened(group_id)}'"
        )
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")


def find_topic(image: ClusterImage, name: str | None, topic_id: UUID | None) -> Topic | None:
    """The topic that a request names, or gives the id of."""
    if topic_id is not None and topic_id != ZERO_UUID:
        return image.topics_by_id.get(topic_id)
    return image.topics.get(name or "")
