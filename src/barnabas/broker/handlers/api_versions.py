"""ApiVersions, versions 0 to 4: what this broker serves.

- From version 3 a client tells its software's name and version; one that gives no proper ones gets INVALID_REQUEST and
  an empty list.
- A request of a version that does not exist is answered in the form of version 0, with UNSUPPORTED_VERSION, so that the
  client can ask again.
- Not here: features, which are those of KRaft clusters. There are none, so clients keep to what needs no agreement of
  the cluster (transactions of version 1, classic groups).
"""

from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.api_versions import (
    advertised_apis,
    decode_api_versions_request,
    encode_api_versions_response,
    is_software_text,
    unsupported_version_body,
)
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode


class ApiVersionsHandler:
    def __init__(self, services: Services) -> None:
        self._served = advertised_apis()

    def __call__(self, request: Request, body: memoryview) -> None:
        version = request.version
        if not APIS[ApiKey.API_VERSIONS].serves(version):
            request.add_error(ErrorCode.UNSUPPORTED_VERSION)
            request.respond(unsupported_version_body())
            return
        software = decode_api_versions_request(version, body)
        if software is not None and not (is_software_text(software.name) and is_software_text(software.version)):
            request.add_error(ErrorCode.INVALID_REQUEST)
            request.respond(encode_api_versions_response(version, ErrorCode.INVALID_REQUEST, (), request.throttle_ms))
            return
        if software is not None:
            request.identify(f"{software.name}/{software.version}")
        request.respond(encode_api_versions_response(version, ErrorCode.NONE, self._served, request.throttle_ms))
