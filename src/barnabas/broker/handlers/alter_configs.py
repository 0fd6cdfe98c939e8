"""AlterConfigs, versions 0 to 2: a resource gets these settings and loses all others.

- All versions are alike. It is the older of the two APIs; IncrementalAlterConfigs changes single settings and is what
  tools use today.
- Each resource is changed or refused alone, and answered when the change is in use here.
- Not here: levels of loggers, and other brokers' own settings.
"""

from collections.abc import Iterable

from barnabas.base.errors import BarnabasError
from barnabas.base.settings import SettingTable
from barnabas.base.texts import shortened
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.config_changes import ConfigChanger, Configs
from barnabas.broker.handlers.config_resources import check_sole, grouped
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import AlterableConfig, AlterConfigsRequest


class AlterConfigsHandler:
    def __init__(self, services: Services) -> None:
        self._slices = services.slices
        self._changer = ConfigChanger(services)

    async def __call__(self, request: Request, asked: AlterConfigsRequest) -> Values:
        given = await grouped(self._slices, asked.resources)
        responses = []
        async for resource in self._slices.each(asked.resources):
            kind, name = resource.resource_type, resource.resource_name
            response: dict[str, object] = {"resource_type": kind, "resource_name": name, "error_message": None}
            try:
                check_sole(given[kind, name])
                change = _replacement(resource.configs)
                await self._changer.apply(request, kind, name, change, validate_only=asked.validate_only)
            except BarnabasError as error:
                response["error_code"], response["error_message"] = refusal_of(error)
            responses.append(response)
        return {"responses": responses}


class _Replacement:
    def __init__(self, configs: Configs) -> None:
        self._configs = configs

    def __call__(self, before: Configs, table: SettingTable) -> Configs:
        return self._configs


def _replacement(given: Iterable[AlterableConfig]) -> _Replacement:
    configs: dict[str, str] = {}
    for one in given:
        if one.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{shortened(one.name)} needs a value")
        if one.name in configs:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{shortened(one.name)} is given twice")
        configs[one.name] = one.value
    return _Replacement(configs)
