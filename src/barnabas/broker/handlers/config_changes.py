"""Changes to settings, as both of Kafka's APIs for it ask for them: checked, written, and waited for.

A change is a function from the settings that a resource has to those that it shall have. It is applied to what the
metadata store has at that moment, so that two clients who change different settings do not undo each other's work.
Which broker settings can be changed while it runs, and for whom, is in the table.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from barnabas.base.errors import InvalidSetting
from barnabas.base.ids import topic_name_problem
from barnabas.base.settings import Dynamic, Setting, SettingTable
from barnabas.broker.audit import log_change, settings_text
from barnabas.broker.authorizer import Operation
from barnabas.broker.handlers.config_resources import ResourceType, check_own_id
from barnabas.broker.internal_topics import check_internal_config
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.broker.setting_table import SERVER_SETTINGS, missing_feature
from barnabas.broker.settings import CONNECTION_LIMITS, check_together, connections_max_from
from barnabas.controller.configs import update_broker_configs, update_topic_configs
from barnabas.metadata.image import ClusterImage
from barnabas.storage.setting_tables import TOPIC_SETTINGS
from barnabas.wire.errors import ErrorCode, KafkaError

Configs: TypeAlias = Mapping[str, str]
Change: TypeAlias = Callable[[Configs, SettingTable], Configs]
"""From a resource's settings and the table they are in to what they shall be. Raises `KafkaError` to refuse."""


class ConfigChanger:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def apply(
        self, request: Request, resource_type: int, name: str, change: Change, *, validate_only: bool
    ) -> None:
        """Raises the error to answer for this resource."""
        if resource_type == ResourceType.TOPIC:
            self._services.check_topic(request, Operation.ALTER_CONFIGS, name)
            await self._apply_to_topic(request, name, change, validate_only=validate_only)
        elif resource_type == ResourceType.BROKER:
            self._services.check_cluster(request, Operation.ALTER_CONFIGS)
            await self._apply_to_broker(request, name, change, validate_only=validate_only)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no settings here")

    async def _apply_to_topic(self, request: Request, name: str, change: Change, *, validate_only: bool) -> None:
        services = self._services
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the defaults of all topics are broker settings")
        if (problem := topic_name_problem(name)) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name not in services.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
        after: Configs = {}
        told = ""

        def update(before: Configs) -> Configs:
            nonlocal after, told
            after = change(before, TOPIC_SETTINGS)
            told = settings_text(before, after, TOPIC_SETTINGS)
            defaults = services.settings.topic_defaults(services.image, services.broker_id)
            check_internal_config(name, defaults.with_topic_settings(after))
            return after

        if validate_only:
            update(services.image.configs_of_topic(name))
            return
        await update_topic_configs(services.controller.controllership, name, update)
        if told:
            log_change(request, "changed topic '%s': %s", name, told, topic=name)
        await services.until_served(lambda image: image.configs_of_topic(name) == after or name not in image.topics)

    async def _apply_to_broker(self, request: Request, name: str, change: Change, *, validate_only: bool) -> None:
        services = self._services
        owner = self._owner(request, name)
        after: Configs = {}
        told = ""

        def update(before: Configs) -> Configs:
            nonlocal after, told
            after = change(before, SERVER_SETTINGS)
            told = settings_text(before, after, SERVER_SETTINGS)
            changed = [one for one in {**before, **after} if before.get(one) != after.get(one)]
            try:
                self._check_broker(request, owner, changed, after)
            except InvalidSetting as error:
                # Kafka's code for a broker's settings, where a topic's get INVALID_CONFIG.
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
            return after

        if validate_only:
            update(services.image.configs_of_broker(owner))
            return
        await update_broker_configs(services.controller.controllership, owner, update)
        if told:
            of = "all brokers" if owner is None else f"broker {owner}"
            log_change(request, "changed %s: %s", of, told, broker=owner)
        await services.until_served(lambda image: image.configs_of_broker(owner) == after)

    def _owner(self, request: Request, name: str) -> int | None:
        """Whose settings they are; None: every broker's. A client asks each broker about its own."""
        if not name:
            return None
        if request.is_forwarded and name in map(str, self._services.image.brokers):
            return int(name)
        check_own_id(self._services.broker_id, name)
        return self._services.broker_id

    def _check_broker(self, request: Request, owner: int | None, changed: list[str], after: Configs) -> None:
        services = self._services
        for name in changed:
            if name in after:
                _check_dynamic(_broker_setting(name), owner)
        SERVER_SETTINGS.parse({name: text for name, text in after.items() if name in changed})
        # As this broker would have it, with the change in its place.
        image = services.image
        changed_image = ClusterImage(
            broker_configs={
                None: image.configs_of_broker(None),
                services.broker_id: image.configs_of_broker(services.broker_id),
                owner: after,
            }
        )
        texts = services.settings.current(changed_image, services.broker_id)
        if not CONNECTION_LIMITS.isdisjoint(changed) and not connections_max_from(request.caller.host, texts):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"this would refuse every connection from {request.caller.host}, which asks for it and could not "
                "undo it; max.connections and the limit of that address must be at least 1",
            )
        check_together(texts)


def _broker_setting(name: str) -> Setting:
    if name not in SERVER_SETTINGS and (feature := missing_feature(name)) is not None:
        raise InvalidSetting(f"{name} cannot be set: Barnabas has no {feature}")
    return SERVER_SETTINGS[name]


def _check_dynamic(setting: Setting, owner: int | None) -> None:
    if setting.dynamic is Dynamic.NO:
        raise InvalidSetting(f"{setting.name} cannot be changed while the broker runs")
    if setting.dynamic is Dynamic.PER_BROKER and owner is None:
        raise InvalidSetting(f"{setting.name} can only be changed for each broker, not for all of them")
