"""What a broker is configured with: the texts that it was started with, and what was changed since.

Three layers, the later over the earlier: the file and command line (static), `/config/brokers/<default>` for all
brokers, `/config/brokers/N` for this one. The last two are in the cluster's image, so that a change reaches the broker
by its watches. `BrokerSettings` puts the layers together; `BrokerConfig` has the values, typed. Pure: no I/O.
"""

import logging
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of_class
from typing import Any, Final, NamedTuple, cast

from barnabas.base.errors import InvalidSetting
from barnabas.base.logs import fields
from barnabas.base.settings import SettingValue
from barnabas.broker.setting_table import BROKER_SETTINGS, PORT_MAX, SERVER_SETTINGS, HostAndPort, missing_feature
from barnabas.metadata.image import ClusterImage
from barnabas.net.connection import ConnectionOptions
from barnabas.net.server import ListenerSpec, ServerOptions
from barnabas.net.stream import ListenAddress
from barnabas.storage.setting_tables import LOG_SETTINGS, TOPIC_SETTINGS
from barnabas.storage.settings import LogConfig, LogManagerConfig, field_name

logger = logging.getLogger(__name__)

PLAINTEXT: Final = "PLAINTEXT"
DEFAULT_NODE_ID: Final = 1

_ADDRESS: Final = re.compile(r"(?P<name>[^:/]+)://(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:/]*)):(?P<port>\d{1,5})")
CONNECTION_LIMITS: Final = frozenset({"max.connections", "max.connections.per.ip", "max.connections.per.ip.overrides"})
_NO_TEXTS: Final[Mapping[str, str]] = {}


class Recognised(NamedTuple):
    """A configuration file's settings: those to use, and lines about the others."""

    texts: dict[str, str]
    notes: list[str]


def recognise(texts: Mapping[str, str]) -> Recognised:
    """Parts the settings that exist here from those that are Kafka's alone, or nobody's. Values are not checked."""
    known: dict[str, str] = {}
    notes = []
    for name, text in texts.items():
        if name in SERVER_SETTINGS:
            known[name] = text
        elif (feature := missing_feature(name)) is not None:
            notes.append(f"{name} has no effect: Barnabas has no {feature}")
        else:
            notes.append(f"{name} is not a setting and has no effect{_hint(name)}")
    for listener in _controller_listeners(texts):
        notes.append(f"the listener {listener} is ignored: Barnabas needs no connections between controllers")
    return Recognised(known, notes)


def _controller_listeners(texts: Mapping[str, str]) -> list[str]:
    """The listeners of a controller that have an address."""
    addresses = ",".join(texts.get(name, "") for name in ("listeners", "advertised.listeners")).upper().split(",")
    named = {address.strip().partition("://")[0] for address in addresses}
    names = [name.strip().upper() for name in texts.get("controller.listener.names", "").split(",")]
    return [name for name in names if name in named and name]


def _hint(name: str) -> str:
    if name in TOPIC_SETTINGS and TOPIC_SETTINGS[name].synonyms:
        return f"; it is a topic setting, and the default for all topics is {TOPIC_SETTINGS[name].synonyms[0].name}"
    try:
        SERVER_SETTINGS[name]
    except InvalidSetting as error:
        _, separator, hint = str(error).partition(";")
        return separator + hint
    return ""


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The broker's own settings. Fields are named like their settings, with underscores for dots."""

    node_id: int | None
    broker_rack: str | None
    listeners: tuple[ListenerSpec, ...]
    metrics_listen: ListenAddress | None
    socket_request_max_bytes: int
    queued_max_request_bytes: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    connections_max_idle_ms: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_listen_backlog_size: int
    network_awake_us: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    num_partitions: int
    default_replication_factor: int
    background_threads: int
    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    offsets_topic_compression_codec: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offset_metadata_max_bytes: int

    @classmethod
    def from_settings(cls, texts: Mapping[str, str]) -> "BrokerConfig":
        """From the texts of a broker's settings, its logs' among them; InvalidSetting for a wrong one."""
        own = {name: text for name, text in texts.items() if name in BROKER_SETTINGS}
        values: dict[str, Any] = {**BROKER_SETTINGS.defaults(), **BROKER_SETTINGS.parse(own)}
        changes = {field_name(name): value for name, value in values.items()}
        plain = {field.name: changes[field.name] for field in fields_of_class(cls)}
        plain["node_id"] = _node_id(values["node.id"], values["broker.id"])
        plain["listeners"] = _listener_specs(values)
        plain["metrics_listen"] = _listen_address(values["metrics.listen"])
        plain["max_connections_per_ip_overrides"] = _limits(values["max.connections.per.ip.overrides"])
        config = cls(**plain)
        config._check_together()
        return config

    def _check_together(self) -> None:
        if 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise InvalidSetting(
                f"queued.max.request.bytes={self.queued_max_request_bytes} must not be less than"
                f" socket.request.max.bytes={self.socket_request_max_bytes}"
            )
        if self.max_connections_per_ip == 0 and not any(self.max_connections_per_ip_overrides.values()):
            raise InvalidSetting(
                "max.connections.per.ip=0 would shut out everybody; max.connections.per.ip.overrides must list the "
                "addresses that may connect"
            )
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise InvalidSetting(
                f"group.min.session.timeout.ms={self.group_min_session_timeout_ms} must not be more than"
                f" group.max.session.timeout.ms={self.group_max_session_timeout_ms}"
            )

    def server_options(self) -> ServerOptions:
        return ServerOptions(
            connection=ConnectionOptions(request_bytes_max=self.socket_request_max_bytes),
            queued_request_bytes_max=self.queued_max_request_bytes if self.queued_max_request_bytes > 0 else None,
            idle_seconds=self.connections_max_idle_ms / 1000 if self.connections_max_idle_ms >= 0 else None,
            connections_max=self.max_connections,
            connections_per_host_max=self.max_connections_per_ip,
            connections_per_host_overrides=self.max_connections_per_ip_overrides,
            backlog=self.socket_listen_backlog_size,
            send_buffer_bytes=self.socket_send_buffer_bytes if self.socket_send_buffer_bytes > 0 else None,
            receive_buffer_bytes=self.socket_receive_buffer_bytes if self.socket_receive_buffer_bytes > 0 else None,
            awake_seconds=self.network_awake_us / 1_000_000 if len(os.sched_getaffinity(0)) > 1 else 0.0,
        )


class BrokerSettings:
    """The static texts of a broker, checked, and what they become under an image's changes."""

    def __init__(self, texts: Mapping[str, str] = _NO_TEXTS) -> None:
        """InvalidSetting for an unknown name or a wrong value."""
        for name in texts:
            SERVER_SETTINGS[name]
        self.texts = dict(texts)
        self.config = BrokerConfig.from_settings(self.texts)
        self.log_manager_config = self._log_manager_config(self.texts)
        self._static_defaults = LogConfig.broker_defaults(_log_texts(self.texts))
        self._defaults_of: tuple[Mapping[int | None, Mapping[str, str]], LogConfig] = ({}, self._static_defaults)

    def current(self, image: ClusterImage, broker_id: int) -> dict[str, str]:
        """The texts that hold now; what the image has and cannot be used is left out."""
        texts = dict(self.texts)
        for owner in (None, broker_id):
            texts |= _usable(image.configs_of_broker(owner))
        return texts

    def current_config(self, image: ClusterImage, broker_id: int) -> BrokerConfig:
        try:
            return BrokerConfig.from_settings(self.current(image, broker_id))
        except InvalidSetting as error:
            logger.error("the changed settings of the broker contradict each other and are ignored: %s", error)
            return self.config

    def current_log_manager_config(self, image: ClusterImage, broker_id: int) -> LogManagerConfig:
        try:
            return self._log_manager_config(self.current(image, broker_id))
        except InvalidSetting as error:
            logger.error("the changed settings of the broker's logs contradict each other and are ignored: %s", error)
            return self.log_manager_config

    def _log_manager_config(self, texts: Mapping[str, str]) -> LogManagerConfig:
        config = LogManagerConfig.from_settings(_log_texts(texts))
        # A pass takes minutes, and the same threads flush, create and delete.
        threads_max = max(1, self.config.background_threads // 2)
        return replace(config, log_cleaner_threads=min(config.log_cleaner_threads, threads_max))

    def log_config(self, image: ClusterImage, broker_id: int, topic: str) -> LogConfig:
        """The settings of a topic's logs on this broker."""
        defaults = self.topic_defaults(image, broker_id)
        texts = image.configs_of_topic(topic)
        try:
            return defaults.with_topic_settings(texts)
        except InvalidSetting as error:
            logger.error("topic %s has settings that cannot be used: %s", topic, error, extra=fields(topic=topic))
        config = defaults
        for name, text in texts.items():  # the others count, each of them: cleanup.policy decides what is deleted
            with suppress(InvalidSetting):
                config = config.with_topic_settings({name: text})
        return config

    def topic_defaults(self, image: ClusterImage, broker_id: int) -> LogConfig:
        """What a topic without settings has on this broker."""
        configs, defaults = self._defaults_of
        if configs is not image.broker_configs:
            defaults = self._defaults(image, broker_id)
            self._defaults_of = (image.broker_configs, defaults)
        return defaults

    def _defaults(self, image: ClusterImage, broker_id: int) -> LogConfig:
        try:
            return LogConfig.broker_defaults(_log_texts(self.current(image, broker_id)))
        except InvalidSetting as error:
            logger.error("the changed settings of the broker contradict each other and are ignored: %s", error)
            return self._static_defaults


def connections_max_from(host: str, texts: Mapping[str, str]) -> int:
    """How many connections these settings allow from an address."""
    values: dict[str, Any] = BROKER_SETTINGS.defaults()
    values |= BROKER_SETTINGS.parse({name: text for name, text in texts.items() if name in CONNECTION_LIMITS})
    overrides = _limits(values["max.connections.per.ip.overrides"])
    return int(min(values["max.connections"], overrides.get(host, values["max.connections.per.ip"])))


def check_together(texts: Mapping[str, str]) -> None:
    """Refuses settings that are each allowed and do not go together."""
    BrokerConfig.from_settings(texts)
    LogManagerConfig.from_settings(_log_texts(texts))
    LogConfig.broker_defaults(_log_texts(texts))


def _log_texts(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if name in LOG_SETTINGS}


def _usable(texts: Mapping[str, str]) -> dict[str, str]:
    """A change that somebody wrote past our checks, or that a newer broker understands, must not stop this one."""
    usable = {}
    for name, text in texts.items():
        try:
            SERVER_SETTINGS[name].parse(text)
        except InvalidSetting as error:
            logger.error("a changed setting of the broker cannot be used: %s", error)
        else:
            usable[name] = text
    return usable


def _node_id(node_id: int | None, broker_id: int) -> int | None:
    if node_id is not None and broker_id >= 0 and node_id != broker_id:
        raise InvalidSetting(f"node.id={node_id} and broker.id={broker_id} differ; set only one of them")
    return node_id if node_id is not None else (broker_id if broker_id >= 0 else None)


def _limits(text: str) -> dict[str, int]:
    pairs = [pair.strip().rpartition(":") for pair in text.split(",") if pair.strip()]
    return {address.strip(): int(number) for address, _, number in pairs}


# -- listeners -----------------------------------------------------------------------------------------------------


def _listen_address(text: str | None) -> ListenAddress | None:
    address = None if text is None else HostAndPort.split(text)
    return None if address is None else ListenAddress(*address)


class _Address(NamedTuple):
    host: str
    port: int


def _listener_specs(values: Mapping[str, SettingValue]) -> tuple[ListenerSpec, ...]:
    controllers = {name.upper() for name in cast(tuple[str, ...], values["controller.listener.names"])}
    bound = _addresses("listeners", cast(tuple[str, ...], values["listeners"]))
    advertised = _addresses("advertised.listeners", cast(tuple[str, ...], values["advertised.listeners"] or ()))
    advertised = {name: address for name, address in advertised.items() if name not in controllers}
    served = {name: address for name, address in bound.items() if name not in controllers}
    if not served:
        raise InvalidSetting("listeners has no listener for clients")
    for name in advertised:
        if name not in served:
            raise InvalidSetting(f"advertised.listeners names {name}, which listeners does not have")
        if advertised[name].host in ("", "0.0.0.0", "::"):
            raise InvalidSetting(f"advertised.listeners needs a host for {name} that clients can reach")
    _check_protocols(served, str(values["listener.security.protocol.map"]))
    _check_ports(served)
    return tuple(
        [
            ListenerSpec(
                name,
                address.host,
                address.port,
                advertised[name].host if name in advertised else None,
                advertised[name].port if name in advertised else None,
            )
            for name, address in served.items()
        ]
    )


def _addresses(setting: str, texts: Iterable[str]) -> dict[str, _Address]:
    addresses: dict[str, _Address] = {}
    for text in texts:
        match = _ADDRESS.fullmatch(text)
        if match is None or int(match["port"]) > PORT_MAX:
            raise InvalidSetting(f"{setting}={text} is not allowed; it must be NAME://HOST:PORT")
        name = match["name"].upper()
        if name in addresses:
            raise InvalidSetting(f"{setting} has two addresses for the listener {name}")
        addresses[name] = _Address(match["host"] if match["v6"] is None else match["v6"], int(match["port"]))
    return addresses


def _check_protocols(served: Iterable[str], protocol_map: str) -> None:
    protocols = {}
    for pair in protocol_map.split(","):
        name, separator, protocol = pair.strip().partition(":")
        if pair.strip() and not (separator and protocol.strip()):
            raise InvalidSetting(f"listener.security.protocol.map={protocol_map} must be pairs NAME:PROTOCOL")
        protocols[name.strip().upper()] = protocol.strip().upper()
    for name in served:
        protocol = protocols.get(name, "")
        if not protocol:
            raise InvalidSetting(f"listener {name} needs a protocol: add {name}:PLAINTEXT to the protocol map")
        if protocol != PLAINTEXT:
            raise InvalidSetting(f"listener {name} would need {protocol}; Barnabas serves {PLAINTEXT} only")


def _check_ports(served: Mapping[str, _Address]) -> None:
    names: dict[_Address, str] = {}
    for name, address in served.items():
        if address.port and address in names:
            raise InvalidSetting(f"listeners {names[address]} and {name} have the same address")
        names[address] = name
