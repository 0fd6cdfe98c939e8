"""DescribeAcls, CreateAcls and DeleteAcls, versions 1 to 3: there are no access control lists here.

SECURITY_DISABLED, as from a Kafka without an authorizer: everybody may do everything, and a tool that asks is told so.
"""

from typing import Any, Final

from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode

_DISABLED: Final = {
    "error_code": ErrorCode.SECURITY_DISABLED,
    "error_message": "no authorizer is configured: there are no access control lists",
}


class DescribeAclsHandler:
    def __init__(self, services: Services) -> None: ...

    async def __call__(self, request: Request, asked: Any) -> Values:
        return {"throttle_time_ms": request.throttle_ms, **_DISABLED, "resources": []}


class CreateAclsHandler:
    def __init__(self, services: Services) -> None: ...

    async def __call__(self, request: Request, asked: Any) -> Values:
        return {"throttle_time_ms": request.throttle_ms, "results": (_DISABLED for _ in asked.creations)}


class DeleteAclsHandler:
    def __init__(self, services: Services) -> None: ...

    async def __call__(self, request: Request, asked: Any) -> Values:
        results = ({**_DISABLED, "matching_acls": []} for _ in asked.filters)
        return {"throttle_time_ms": request.throttle_ms, "filter_results": results}
