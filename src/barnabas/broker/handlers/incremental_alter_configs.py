"""IncrementalAlterConfigs, versions 0 and 1: single settings of topics and brokers, and levels of loggers.

- Both versions are alike.
- A resource is changed as a whole or not at all, and answered when the change is in use here.
- Not here: settings of groups and of client metrics, and other brokers' own settings.

| operation | what it does |
|---|---|
| SET | gives the setting a value |
| DELETE | takes the resource's own value away, so that the default holds; fine where there is none |
| APPEND, SUBTRACT | adds members to a list, or takes them out, beginning with the default where it is not set |
"""

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum

from barnabas.base.errors import BarnabasError, InvalidSetting
from barnabas.base.settings import SettingTable, SettingType
from barnabas.base.texts import shortened
from barnabas.broker.audit import log_change
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.config_changes import ConfigChanger, Configs
from barnabas.broker.handlers.config_resources import ResourceType, check_own_id, check_sole, grouped
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.loggers import ROOT, check_level, set_level
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import SET_CONFIG, AlterableConfig, IncrementalAlterConfigsRequest


class ConfigOperation(IntEnum):
    SET = SET_CONFIG
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class IncrementalAlterConfigsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._changer = ConfigChanger(services)

    async def __call__(self, request: Request, asked: IncrementalAlterConfigsRequest) -> Values:
        slices = self._services.slices
        given = await grouped(slices, asked.resources)
        responses = []
        async for resource in slices.each(asked.resources):
            kind, name = resource.resource_type, resource.resource_name
            response: dict[str, object] = {"resource_type": kind, "resource_name": name, "error_message": None}
            try:
                check_sole(given[kind, name])
                _check(resource.configs)
                if kind == ResourceType.BROKER_LOGGER:
                    self._change_levels(request, name, resource.configs, validate_only=asked.validate_only)
                else:
                    steps = _Steps(resource.configs)
                    await self._changer.apply(request, kind, name, steps, validate_only=asked.validate_only)
            except BarnabasError as error:
                response["error_code"], response["error_message"] = refusal_of(error)
            responses.append(response)
        return {"responses": responses}

    def _change_levels(
        self, request: Request, name: str, configs: Sequence[AlterableConfig], *, validate_only: bool
    ) -> None:
        self._services.check_cluster(request, Operation.ALTER_CONFIGS)
        check_own_id(self._services.broker_id, name)
        for one in configs:
            is_deleted = one.config_operation == ConfigOperation.DELETE
            if not is_deleted and one.config_operation != ConfigOperation.SET:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a level is set or deleted")
            if is_deleted and one.name == ROOT:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the root logger always has a level")
            check_level(one.name, None if is_deleted else one.value)
        if not validate_only:
            for one in configs:
                level = None if one.config_operation == ConfigOperation.DELETE else one.value
                set_level(one.name, level)
                log_change(request, "changed the level of logger %s to %s", one.name, level or "its default")


def _check(configs: Sequence[AlterableConfig]) -> None:
    operations = {operation.value for operation in ConfigOperation}
    names = Counter(one.name for one in configs)
    for one in configs:
        if names[one.name] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{shortened(one.name)} is changed twice")
        if one.config_operation not in operations:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no operation {one.config_operation}")
        if one.value is None and one.config_operation != ConfigOperation.DELETE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{shortened(one.name)} needs a value")


class _Steps:
    """The operations of a request on one resource."""

    def __init__(self, configs: Sequence[AlterableConfig]) -> None:
        self._configs = configs

    def __call__(self, before: Configs, table: SettingTable) -> Configs:
        after = dict(before)
        for one in self._configs:
            if one.config_operation == ConfigOperation.DELETE:
                after.pop(one.name, None)
                continue
            assert one.value is not None, "the request was checked"
            if one.config_operation == ConfigOperation.SET:
                after[one.name] = one.value
            else:
                have = after.get(one.name)
                after[one.name] = _changed_list(table, one.name, have, one.config_operation, one.value)
        return after


def _changed_list(table: SettingTable, name: str, current: str | None, operation: int, text: str) -> str:
    setting = table[name]
    if setting.type is not SettingType.LIST:
        raise InvalidSetting(f"{name} is not a list: it can be set or deleted")
    have = setting.format(setting.default) if current is None else current
    members = [member.strip() for member in have.split(",") if member.strip()]
    given = [member.strip() for member in text.split(",") if member.strip()]
    if operation == ConfigOperation.APPEND:
        members += [member for member in dict.fromkeys(given) if member not in members]
    else:
        members = [member for member in members if member not in given]
    return ",".join(members)
