"""ApiVersions, versions 0 to 4: what this broker serves.

A client that gives no proper name or version of its software gets INVALID_REQUEST and an empty list. A request of a
version that does not exist is answered by the dispatcher, before it comes here. Features are those of KRaft clusters:
there are none, so clients keep to what needs no agreement of the cluster (transactions of version 1, classic groups).
"""

from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.api_versions import advertised_apis, is_software_text
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import decode_request

_SOFTWARE_FROM = 3


class ApiVersionsHandler:
    def __init__(self, services: Services) -> None:
        self._served = [
            {"api_key": api.key, "min_version": api.advertised_min, "max_version": api.version_max}
            for api in advertised_apis()
        ]

    async def __call__(self, request: Request) -> Values:
        if request.version >= _SOFTWARE_FROM:
            asked = decode_request(ApiKey.API_VERSIONS, request.version, request.body)
            if not is_software_text(asked.client_software_name) or not is_software_text(asked.client_software_version):
                return {"error_code": ErrorCode.INVALID_REQUEST, "api_keys": []}
        return {"error_code": ErrorCode.NONE, "api_keys": self._served, "throttle_time_ms": request.throttle_ms}
