"""DescribeConfigs, versions 1 to 4: the settings of topics and brokers, and the levels of loggers.

- From version 3 the answer has each setting's type and, if asked for, its documentation.
- A resource that the request names more than once is answered once, with all settings that it was asked for.
- Not here: passwords are never told. Groups and client metrics have no settings: INVALID_REQUEST.

| resource | named by | answer |
|---|---|---|
| TOPIC | its name | every topic setting |
| BROKER | this broker's id | every setting of the broker |
| BROKER | nothing | those that were changed for all brokers |
| BROKER_LOGGER | this broker's id | every logger's level |
"""

from collections.abc import Sequence

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import topic_name_problem
from barnabas.broker.authorizer import Operation
from barnabas.broker.config_views import (
    ConfigEntry,
    ConfigSource,
    broker_entries,
    default_broker_entries,
    topic_entries,
)
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.config_resources import RESOURCE_TYPES, ResourceType, check_own_id, grouped
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.loggers import logger_levels
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import DescribeConfigsRequest, DescribeConfigsResource


class DescribeConfigsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: DescribeConfigsRequest) -> Values:
        resources = await grouped(self._services.slices, asked.resources)
        # As in Kafka, one resource of a type that does not exist spoils the whole request.
        is_spoiled = not RESOURCE_TYPES.issuperset(kind for kind, _ in resources)
        results = (
            self._result(request, asked, kind, name, _wanted(given), is_spoiled=is_spoiled)
            for (kind, name), given in resources.items()
        )
        return {"results": results}

    def _result(
        self,
        request: Request,
        asked: DescribeConfigsRequest,
        kind: int,
        name: str,
        wanted: frozenset[str],
        *,
        is_spoiled: bool,
    ) -> Values:
        result: dict[str, object] = {
            "resource_type": kind,
            "resource_name": name,
            "error_code": ErrorCode.NONE,
            "error_message": "",
            "configs": [],
        }
        try:
            if is_spoiled:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "there is no such type of resource")
            result["configs"] = self._describe(request, asked, kind, name, wanted)
        except BarnabasError as error:
            result["error_code"], result["error_message"] = refusal_of(error)
        return result

    def _describe(
        self, request: Request, asked: DescribeConfigsRequest, kind: int, name: str, wanted: frozenset[str]
    ) -> Sequence[Values]:
        services = self._services
        if kind == ResourceType.TOPIC:
            services.check_topic(request, Operation.DESCRIBE_CONFIGS, name)
            return _shown(self._of_topic(name), asked, wanted)
        services.check_cluster(request, Operation.DESCRIBE_CONFIGS)
        if kind == ResourceType.BROKER:
            return _shown(self._of_broker(name), asked, wanted)
        if kind == ResourceType.BROKER_LOGGER:
            check_own_id(services.broker_id, name)
            return [_logger_level(*level) for level in logger_levels().items() if not wanted or level[0] in wanted]
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {kind} have no settings here")

    def _of_topic(self, name: str) -> Sequence[ConfigEntry]:
        services = self._services
        if (problem := topic_name_problem(name)) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name not in services.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
        configs = services.image.configs_of_topic(name)
        return topic_entries(services.settings, services.image, services.broker_id, configs)

    def _of_broker(self, name: str) -> Sequence[ConfigEntry]:
        services = self._services
        if not name:
            return default_broker_entries(services.image)
        check_own_id(services.broker_id, name)
        return broker_entries(services.settings, services.image, services.broker_id)


def _wanted(given: Sequence[DescribeConfigsResource]) -> frozenset[str]:
    """The names of the settings that are asked for; none means all, as null and an empty list do."""
    keys: set[str] = set()
    for one in given:
        if not one.configuration_keys:
            return frozenset()
        keys.update(one.configuration_keys)
    return frozenset(keys)


def _shown(entries: Sequence[ConfigEntry], asked: DescribeConfigsRequest, wanted: frozenset[str]) -> list[Values]:
    return [_entry(entry, asked) for entry in entries if not wanted or entry.name in wanted]


def _entry(entry: ConfigEntry, asked: DescribeConfigsRequest) -> Values:
    synonyms = entry.synonyms if asked.include_synonyms else ()
    is_sensitive = entry.setting.is_sensitive
    return {
        "name": entry.name,
        "value": entry.shown_value,
        "read_only": entry.is_read_only,
        "config_source": entry.source,
        "is_sensitive": is_sensitive,
        "synonyms": [
            {"name": one.name, "value": None if is_sensitive else one.value, "source": one.source} for one in synonyms
        ],
        "config_type": entry.setting.type,
        "documentation": entry.setting.doc if asked.include_documentation else None,
    }


def _logger_level(name: str, level: str) -> Values:
    return {
        "name": name,
        "value": level,
        "config_source": ConfigSource.LOGGER,
        "synonyms": [],
        "documentation": "",
    }
