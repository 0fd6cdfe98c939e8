"""ListConfigResources, versions 0 and 1: what has settings.

- Version 0 lists subscriptions of client metrics, of which there are none. From version 1 the request has the types of
  resources; no types mean all of them, and one that does not exist is UNSUPPORTED_VERSION, as in Kafka.
- Not here: groups and client metrics, which have no settings and are not listed.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.config_resources import RESOURCE_TYPES, ResourceType
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode
from barnabas.wire.request_views import ListConfigResourcesRequest

_TYPES_FROM: Final = 1


class ListConfigResourcesHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: ListConfigResourcesRequest) -> Values:
        code = ErrorCode.NONE
        resources: Iterable[Values] = ()
        types: Sequence[int] = asked.resource_types or tuple(ResourceType)
        if request.version < _TYPES_FROM:
            types = (ResourceType.CLIENT_METRICS,)
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
        return {"error_code": code, "config_resources": resources}

    def _names(self, resource_type: int) -> list[str]:
        image = self._services.image
        if resource_type == ResourceType.TOPIC:
            return sorted(image.topics)
        if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
            return [str(broker_id) for broker_id in sorted(image.brokers)]
        return []
