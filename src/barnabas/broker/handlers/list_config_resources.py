"""ListConfigResources, versions 0 and 1: what has settings. No types in the request mean all of them.

Version 0 lists subscriptions of client metrics; there are none. A type that does not exist is UNSUPPORTED_VERSION, as
in Kafka.
"""

from collections.abc import Iterable
from typing import Any

from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.config_resources import RESOURCE_TYPES, ResourceType
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode


class ListConfigResourcesHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: Any) -> Values:
        code = ErrorCode.NONE
        resources: Iterable[Values] = ()
        types = (ResourceType.CLIENT_METRICS,) if request.version == 0 else asked.resource_types or tuple(ResourceType)
        if not self._services.allows_cluster(request, Operation.DESCRIBE_CONFIGS):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        elif not RESOURCE_TYPES.issuperset(types):
            code = ErrorCode.UNSUPPORTED_VERSION
        else:
            resources = (
                {"resource_name": name, "resource_type": one}
                for one in dict.fromkeys(types)
                for name in self._names(one)
            )
        return {"throttle_time_ms": request.throttle_ms, "error_code": code, "config_resources": resources}

    def _names(self, resource_type: int) -> list[str]:
        image = self._services.image
        if resource_type == ResourceType.TOPIC:
            return sorted(image.topics)
        if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
            return [str(broker_id) for broker_id in sorted(image.brokers)]
        return []
