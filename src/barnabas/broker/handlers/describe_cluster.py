"""DescribeCluster, versions 0 to 2: cluster id, controller and brokers, by the addresses of the request's listener.

- From version 1 the request says whose endpoints it wants. This is a broker's: who asks for a controller's gets
  MISMATCHED_ENDPOINT_TYPE.
- Version 2 asks for fenced brokers, too, of which there are none: one that is not registered is not there.
"""

from typing import Final

from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.operations import NOT_TOLD, cluster_operations
from barnabas.broker.handlers.topic_views import broker_addresses, controller_id
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode
from barnabas.wire.request_views import BROKER_ENDPOINTS, DescribeClusterRequest

_CONTROLLERS: Final = 2


class DescribeClusterHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: DescribeClusterRequest) -> Values:
        if asked.endpoint_type == _CONTROLLERS:
            return _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is the endpoint of a broker, not of a controller")
        if asked.endpoint_type != BROKER_ENDPOINTS:
            return _refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {asked.endpoint_type}")
        operations = NOT_TOLD
        if asked.include_cluster_authorized_operations:
            operations = cluster_operations(self._services, request)
        return {
            "error_code": ErrorCode.NONE,
            "cluster_id": self._services.cluster_id,
            "controller_id": controller_id(self._services),
            "brokers": [
                {"broker_id": one.id, "host": one.endpoint.host, "port": one.endpoint.port, "rack": one.rack}
                for one in broker_addresses(self._services, request.caller.listener)
            ],
            "cluster_authorized_operations": operations,
        }


def _refused(code: ErrorCode, message: str) -> Values:
    return {"error_code": code, "error_message": message, "cluster_id": "", "brokers": []}
