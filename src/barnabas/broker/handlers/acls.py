"""DescribeAcls, CreateAcls and DeleteAcls, versions 1 to 3: there are no access control lists here.

- The answer is the same in all versions: SECURITY_DISABLED, as from a Kafka without an authorizer. Everybody may do
  everything, and a tool that asks is told so.
- Not here: nothing of what is asked for is looked at, but how many things there are to answer.
"""

from typing import Final

from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode
from barnabas.wire.request_views import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

_DISABLED: Final = {
    "error_code": ErrorCode.SECURITY_DISABLED,
    "error_message": "no authorizer is configured: there are no access control lists",
}


class DescribeAclsHandler:
    def __init__(self, services: Services) -> None: ...

    async def __call__(self, request: Request, asked: DescribeAclsRequest) -> Values:
        return {**_DISABLED, "resources": []}


class CreateAclsHandler:
    def __init__(self, services: Services) -> None: ...

    async def __call__(self, request: Request, asked: CreateAclsRequest) -> Values:
        return {"results": (_DISABLED for _ in asked.creations)}


class DeleteAclsHandler:
    def __init__(self, services: Services) -> None: ...

    async def __call__(self, request: Request, asked: DeleteAclsRequest) -> Values:
        results = ({**_DISABLED, "matching_acls": []} for _ in asked.filters)
        return {"filter_results": results}
