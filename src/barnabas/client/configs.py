"""Settings of topics and brokers, read and changed while they run: DescribeConfigs and IncrementalAlterConfigs.

Only the broker itself knows its own settings, so requests for them go there; everything else goes to any broker.

Brokers may learn of a change a moment after it was made. A caller should not read the old value after its own change,
so `alter_configs` waits for it, but not for long: somebody else may have changed it again.
"""

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from barnabas.client.broker_connection import BrokerConnection
from barnabas.client.cluster import Cluster
from barnabas.client.errors import raise_for
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages import Message

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
_SET: Final = 0
_UNSET: Final = 1
_VISIBLE_SECONDS_MAX: Final = 2.0


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """Where a value comes from, by Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource":
        return cls.UNKNOWN


_OWN_SOURCES: Final = {
    (ResourceType.TOPIC, True): {ConfigSource.TOPIC},
    (ResourceType.BROKER, True): {ConfigSource.DYNAMIC_BROKER},
    (ResourceType.BROKER, False): {ConfigSource.DYNAMIC_DEFAULT_BROKER},
}
"""What a value has as its source that was set on a resource itself: by its type, and whether it has a name."""


@dataclass(frozen=True, slots=True)
class Resource:
    kind: ResourceType
    name: str
    """A topic, or a broker's id; empty for what all brokers share."""

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} '{self.name}'" if self.name else "all brokers"


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    """None for a password, which a broker does not tell."""
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool

    @property
    def is_set(self) -> bool:
        """Whether somebody chose it, rather than Kafka's default."""
        return self.source is not ConfigSource.DEFAULT


async def describe_configs(
    cluster: Cluster, resource: Resource, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The settings by name; all of them when no names are given."""
    asked = None if names is None else sorted(names)
    values = {
        "resources": [
            {"resource_type": int(resource.kind), "resource_name": resource.name, "configuration_keys": asked}
        ]
    }

    async def attempt() -> list[ConfigEntry]:
        connection = await _connection_for(cluster, resource)
        (result,) = (await connection.call(ApiKey.DESCRIBE_CONFIGS, values)).results
        raise_for(result.error_code.value, str(resource), result.error_message)
        return sorted((_entry(config) for config in result.configs), key=lambda entry: entry.name)

    return await cluster.retry(f"the settings of {resource} could not be read", attempt)


async def minimums_in_sync(cluster: Cluster, topics: Collection[str]) -> dict[str, int]:
    """`min.insync.replicas` of topics; those that are gone, or that the user may not look at, are left out."""
    values = {
        "resources": [
            {
                "resource_type": int(ResourceType.TOPIC),
                "resource_name": name,
                "configuration_keys": [MIN_INSYNC_REPLICAS],
            }
            for name in sorted(topics)
        ]
    }

    async def attempt() -> dict[str, int]:
        results = (await (await cluster.any_connection()).call(ApiKey.DESCRIBE_CONFIGS, values)).results
        return {result.resource_name: int(config.value) for result in results for config in result.configs}

    return await cluster.retry("the settings of topics could not be read", attempt) if topics else {}


async def alter_configs(
    cluster: Cluster,
    resource: Resource,
    *,
    set_values: Mapping[str, str] | None = None,
    unset_names: Collection[str] = (),
    validate_only: bool = False,
) -> None:
    """Changes what is named and nothing else; a name that is unset has its default again."""
    changes = [
        *({"name": name, "config_operation": _SET, "value": value} for name, value in (set_values or {}).items()),
        *({"name": name, "config_operation": _UNSET, "value": None} for name in sorted(unset_names)),
    ]
    values = {
        "resources": [
            {"resource_type": int(resource.kind), "resource_name": resource.name, "configs": changes},
        ],
        "validate_only": validate_only,
    }

    async def attempt() -> None:
        connection = await _connection_for(cluster, resource)
        (result,) = (await connection.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, values)).responses
        raise_for(result.error_code.value, str(resource), result.error_message)

    await cluster.retry(f"the settings of {resource} could not be changed", attempt)
    if not validate_only:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_VISIBLE_SECONDS_MAX):
                await _until_visible(cluster, resource, set_values or {}, unset_names)


async def _until_visible(
    cluster: Cluster, resource: Resource, set_values: Mapping[str, str], unset_names: Collection[str]
) -> None:
    tries = 0
    while True:
        entries = await describe_configs(cluster, resource, [*set_values, *unset_names])
        own = {
            entry.name: entry for entry in entries if entry.source in _OWN_SOURCES[resource.kind, bool(resource.name)]
        }
        is_unset = not any(name in own for name in unset_names)
        if is_unset and all(_has_value(own.get(name), value) for name, value in set_values.items()):
            return
        await asyncio.sleep(cluster.backoff_seconds(tries))
        tries += 1


def _has_value(entry: ConfigEntry | None, value: str) -> bool:
    return entry is not None and (entry.is_sensitive or entry.value == value)


async def _connection_for(cluster: Cluster, resource: Resource) -> BrokerConnection:
    if resource.kind is ResourceType.BROKER and resource.name:
        return await cluster.connection(int(resource.name))
    return await cluster.any_connection()


def _entry(config: Message) -> ConfigEntry:
    source = ConfigSource(config.config_source)
    return ConfigEntry(config.name, config.value, source, config.read_only, config.is_sensitive)
