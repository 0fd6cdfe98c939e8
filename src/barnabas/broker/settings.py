"""What a broker is configured with: the texts that it was started with, and what was changed since.

Three layers, the later over the earlier: the file and command line (static), `/config/brokers/<default>` for all
brokers, `/config/brokers/N` for this one. The last two are in the cluster's image, so that a change reaches the broker
by its watches. `BrokerSettings` puts the layers together; `BrokerConfig` has the values, typed. Pure: no I/O.
"""

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from dataclasses import fields as fields_of_class
from typing import Any, Final

from barnabas.base.errors import InvalidSetting
from barnabas.base.logs import fields
from barnabas.broker.listener_settings import inter_broker_listener, listen_address, listener_specs
from barnabas.broker.setting_table import BROKER_SETTINGS, SERVER_SETTINGS
from barnabas.controller.replication_rules import ReplicationRules
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.zookeeper.zookeeper_options import TlsFiles, ZooKeeperOptions
from barnabas.net.connection import ConnectionOptions
from barnabas.net.server import ListenerSpec, ServerOptions
from barnabas.net.stream import ListenAddress
from barnabas.replication.fetcher import FetcherSettings
from barnabas.storage.setting_tables import LOG_SETTINGS
from barnabas.storage.settings import LogConfig, LogManagerConfig, field_name

logger = logging.getLogger(__name__)

DEFAULT_NODE_ID: Final = 1

CONNECTION_LIMITS: Final = frozenset({"max.connections", "max.connections.per.ip", "max.connections.per.ip.overrides"})
_REPLICATION_RULES: Final = ("min.insync.replicas", "unclean.leader.election.enable")
_NO_TEXTS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The broker's own settings. Fields are named like their settings, with underscores for dots."""

    node_id: int | None
    broker_id_generation_enable: bool
    reserved_broker_max_id: int
    broker_rack: str | None
    listeners: tuple[ListenerSpec, ...]
    inter_broker_listener_name: str | None
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
    replica_lag_time_max_ms: int
    replica_fetch_wait_max_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_backoff_ms: int
    replica_socket_timeout_ms: int
    controlled_shutdown_enable: bool
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int
    leader_imbalance_per_broker_percentage: int
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
    zookeeper_connect: str | None
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int | None
    zookeeper_set_acl: bool
    zookeeper_digest_identity: str | None = field(repr=False)
    broker_suspicion_enable: bool
    zookeeper_ssl_client_enable: bool
    zookeeper_ssl_truststore_location: str | None
    zookeeper_ssl_keystore_location: str | None
    zookeeper_ssl_keystore_password: str | None = field(repr=False)
    zookeeper_ssl_endpoint_identification_algorithm: str

    @classmethod
    def from_settings(cls, texts: Mapping[str, str]) -> "BrokerConfig":
        """From the texts of a broker's settings, its logs' among them; InvalidSetting for a wrong one."""
        own = {name: text for name, text in texts.items() if name in BROKER_SETTINGS}
        values: dict[str, Any] = {**BROKER_SETTINGS.defaults(), **BROKER_SETTINGS.parse(own)}
        changes = {field_name(name): value for name, value in values.items()}
        plain = {field.name: changes[field.name] for field in fields_of_class(cls)}
        plain["node_id"] = _node_id(values["node.id"], values["broker.id"])
        plain["listeners"] = listener_specs(values)
        plain["metrics_listen"] = listen_address(values["metrics.listen"])
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
        if self.replica_fetch_wait_max_ms > self.replica_lag_time_max_ms:
            raise InvalidSetting(
                f"replica.fetch.wait.max.ms={self.replica_fetch_wait_max_ms} must not be more than"
                f" replica.lag.time.max.ms={self.replica_lag_time_max_ms}: followers would not stay in sync"
            )
        inter_broker_listener(self.inter_broker_listener_name, self.listeners)
        if self.zookeeper_options() is not None:
            self._check_id_in_cluster()

    def _check_id_in_cluster(self) -> None:
        if not self.broker_id_generation_enable and self.node_id is None:
            raise InvalidSetting("broker.id must be set when broker.id.generation.enable is false")
        if self.broker_id_generation_enable and self.node_id is not None and self.node_id > self.reserved_broker_max_id:
            raise InvalidSetting(
                f"broker.id={self.node_id} must not be more than reserved.broker.max.id={self.reserved_broker_max_id}:"
                " higher ids are generated"
            )

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener through which the brokers of a cluster reach each other."""
        return inter_broker_listener(self.inter_broker_listener_name, self.listeners)

    def fetcher_settings(self) -> FetcherSettings:
        """How this broker follows others."""
        return FetcherSettings(
            wait_ms=self.replica_fetch_wait_max_ms,
            bytes_max=self.replica_fetch_response_max_bytes,
            partition_bytes_max=self.replica_fetch_max_bytes,
            backoff_seconds=self.replica_fetch_backoff_ms / 1000,
            answer_seconds=self.replica_socket_timeout_ms / 1000,
        )

    def zookeeper_options(self) -> ZooKeeperOptions | None:
        """None for a broker that keeps its metadata itself."""
        if not self.zookeeper_connect:
            return None
        connection_timeout_ms = self.zookeeper_connection_timeout_ms
        return replace(
            ZooKeeperOptions.from_connect(self.zookeeper_connect),
            session_timeout_ms=self.zookeeper_session_timeout_ms,
            connection_timeout_ms=connection_timeout_ms or self.zookeeper_session_timeout_ms,
            identity=self.zookeeper_digest_identity or None,
            has_access_lists=self.zookeeper_set_acl,
            tls=self._zookeeper_tls() if self.zookeeper_ssl_client_enable else None,
        )

    def _zookeeper_tls(self) -> TlsFiles:
        return TlsFiles(
            authorities=self.zookeeper_ssl_truststore_location or None,
            certificate=self.zookeeper_ssl_keystore_location or None,
            key_password=self.zookeeper_ssl_keystore_password or None,
            is_host_name_checked=bool(self.zookeeper_ssl_endpoint_identification_algorithm),
        )

    def server_options(self) -> ServerOptions:
        return ServerOptions(
            connection=ConnectionOptions(request_bytes_max=self.socket_request_max_bytes),
            queued_request_bytes_max=self.queued_max_request_bytes if self.queued_max_request_bytes > 0 else None,
            idle_seconds=self.connections_max_idle_ms / 1000 if self.connections_max_idle_ms >= 0 else None,
            connections_max=self.max_connections,
            connections_per_host_max=self.max_connections_per_ip,
            connections_per_host_overrides=self.max_connections_per_ip_overrides,
            unlimited_listener=self.inter_broker_listener if len(self.listeners) > 1 else None,
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

    def replication_rules(self, broker_id: int, image: ClusterImage, configs: Mapping[str, str]) -> ReplicationRules:
        """What a topic with these settings asks of its replicas, as long as this broker is the controller."""
        config = self.topic_defaults(image, broker_id)
        for name in _REPLICATION_RULES:
            if name in configs:
                with suppress(InvalidSetting):  # `log_config` tells of it
                    config = config.with_topic_settings({name: configs[name]})
        return ReplicationRules(config.min_insync_replicas, config.unclean_leader_election_enable)

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
