"""FetchImage, versions 0 and 1: what comes behind a broker's image of the cluster, told by the controller. Our own.

- An answer comes with the next change, or after the time that the broker wants to wait at most.
- Where the connection ends, the broker at its other end may be dead (`barnabas.controller.suspecting`).
- From version 1 it tells what elections among replicas need, and partitions come in columns.
- Any other broker than the controller answers NOT_CONTROLLER.
"""

from functools import partial
from typing import Final

from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Work
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.controller.history import Place
from barnabas.controller.suspicion import Suspect
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import decode_view, write_response
from barnabas.wire.request_views import FetchImageRequest

_WAIT_SECONDS_MAX: Final = 60.0


class FetchImageHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request, body: memoryview) -> Work:
        asked = decode_view(request.api_key, request.version, body, FetchImageRequest)
        return partial(self._answer, request, asked)

    async def _answer(self, request: Request, asked: FetchImageRequest) -> None:
        answers = self._services.seat.answers
        if not self._services.allows_cluster(request, Operation.CLUSTER_ACTION):
            _refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        elif answers is None:
            _refuse(request, ErrorCode.NOT_CONTROLLER)
        else:
            suspect = Suspect(asked.broker_id, asked.broker_epoch)
            request.call_when_closed(partial(self._services.suspecting.poll_closed, suspect))
            wait_seconds = min(max(0, asked.max_wait_ms) / 1000, _WAIT_SECONDS_MAX)
            place = Place(asked.controller_epoch, asked.position)
            request.respond(await answers.answer(request.version, place, wait_seconds))


def _refuse(request: Request, code: ErrorCode) -> None:
    request.add_error(code)
    request.respond(write_response(request.api_key, request.version, {"error_code": code}))
