"""ProbeBroker, version 0: whether a connection to another broker is refused here, too. Our own.

- It is asked by a broker that takes the controller for dead: a majority of the controller's peers must agree.
- The address is that of the registration in this broker's own image; of another registration it says nothing.
- A broker whose `broker.suspicion.enable` is false never agrees.
"""

from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.controller.suspicion import Suspect
from barnabas.wire.errors import ErrorCode
from barnabas.wire.request_views import ProbeBrokerRequest


class ProbeBrokerHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: ProbeBrokerRequest) -> Values:
        if not self._services.allows_cluster(request, Operation.CLUSTER_ACTION):
            return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "is_refused": False}
        suspect = Suspect(asked.broker_id, asked.broker_epoch)
        return {"error_code": ErrorCode.NONE, "is_refused": await self._services.suspecting.is_refused(suspect)}
