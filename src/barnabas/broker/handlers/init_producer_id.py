"""InitProducerId, versions 0 to 5: an id for an idempotent producer, never given before.

- From version 3 a producer may bring an id and an epoch. It gets a new id, with which it starts over: the epoch belongs
  to transactions.
- Not here: transactions. A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, at which clients
  stop at once instead of asking again.
"""

from typing import Final

from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.ids import NO_EPOCH, NO_PRODUCER, ProducerId
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.metadata.errors import SessionLost
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import InitProducerIdRequest

_FIRST_EPOCH: Final = 0


class InitProducerIdHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: InitProducerIdRequest) -> Values:
        try:
            self._services.check_cluster(request, Operation.IDEMPOTENT_WRITE)
            _check(asked)
            producer_id = await self._take()
        except BarnabasError as error:
            return {"error_code": refusal_of(error).code, "producer_id": NO_PRODUCER, "producer_epoch": NO_EPOCH}
        return {
            "error_code": ErrorCode.NONE,
            "producer_id": producer_id,
            "producer_epoch": _FIRST_EPOCH,
        }

    async def _take(self) -> ProducerId:
        try:
            return await self._services.producer_ids.take()
        except (DiskFailed, SessionLost) as error:  # as Kafka says while it waits for a block of ids: ask again
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error


def _check(asked: InitProducerIdRequest) -> None:
    if asked.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
    if (asked.producer_id == NO_PRODUCER) != (asked.producer_epoch == NO_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer must send both its id and its epoch, or neither")
    if asked.transactional_id is not None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported")
