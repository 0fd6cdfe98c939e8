"""The rows for the settings of a broker that are not its logs' (`barnabas.storage.setting_tables` has those).

Names, types, defaults and ranges are Apache Kafka 4.3's; those of a cluster on ZooKeeper, which 4.0 dropped, are
3.9.1's. Settings that Kafka can change while it runs and
Barnabas cannot (listeners, threads) are marked as needing a restart. `UNSUPPORTED` lists the rest of Kafka's settings
by name or prefix, with the feature that they belong to: they are known, reported when given, and have no effect.

To add a setting: add a row here and, if something reads it, a field in `barnabas.broker.settings`; then regenerate the
page with `barnabas.cli.settings_page`.
"""

import re
from typing import Final

from barnabas.base.settings import (
    Between,
    Dynamic,
    ListOf,
    NegativeOrAtLeast,
    OneOf,
    Setting,
    SettingTable,
    SettingType,
    SettingValue,
    Validator,
)
from barnabas.broker.setting_rules import HostAndPort, PairsWithNumber
from barnabas.storage.setting_tables import LOG_SETTINGS, REPLICATION, THREADS

BOOLEAN, INT, SHORT, LONG = SettingType.BOOLEAN, SettingType.INT, SettingType.SHORT, SettingType.LONG
STRING, LIST, PASSWORD = SettingType.STRING, SettingType.LIST, SettingType.PASSWORD

IDENTITY: Final = "Identity"
LISTENERS: Final = "Listeners"
ZOOKEEPER: Final = "ZooKeeper"
CONNECTIONS: Final = "Connections and requests"
TOPICS: Final = "Topics"
THREADS_GROUP: Final = "Threads"
GROUPS: Final = "Consumer groups"
SECURITY: Final = "Access control"

_INT_MAX: Final = 2**31 - 1
_MIB: Final = 1 << 20
_MINUTE_MS: Final = 60_000
_AT_LEAST_0: Final = Between(0)
_AT_LEAST_1: Final = Between(1)
_REQUEST_BYTES_MIN: Final = 512
"""Smaller, and no client could ask for anything."""
_IDLE_MS_MIN: Final = 1000
PARTITIONS_TOGETHER_MAX: Final = 10_000
"""Of one topic when it is created: what Kafka's controller makes at a time."""
_ADDRESSES: Final = ListOf(
    re.compile(r"[A-Za-z0-9_.-]+://.*:\d+"), "a comma-separated list of NAME://HOST:PORT", may_be_empty=False
)
_PROTOCOL_MAP: Final = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"


def _broker(
    group: str,
    name: str,
    value_type: SettingType,
    default: SettingValue,
    validator: Validator | None,
    doc: str,
    dynamic: Dynamic = Dynamic.NO,
    unsupported: str = "",
) -> Setting:
    return Setting(name, value_type, default, doc, group, validator, dynamic, unsupported=unsupported)


# fmt: off
BROKER_SETTINGS: Final = SettingTable("broker", (
    _broker(IDENTITY, "node.id", INT, None, _AT_LEAST_0,
            "The broker's id in its cluster. If it is not set, `broker.id` is used; if that is not set either, the "
            "id in `meta.properties` of the log directories; then 1, or in a cluster a generated one."),
    _broker(IDENTITY, "broker.id", INT, -1, None,
            "The old name of `node.id`; -1 leaves it unset."),
    _broker(IDENTITY, "broker.id.generation.enable", BOOLEAN, True, None,
            "Whether a broker of a cluster that has no id yet generates one above `reserved.broker.max.id`."),
    _broker(IDENTITY, "reserved.broker.max.id", INT, 1000, _AT_LEAST_0,
            "The highest id that can be given to a broker of a cluster by hand, unless ids are never generated."),
    _broker(IDENTITY, "broker.rack", STRING, None, None,
            "The rack that the broker is in. Clients can see it, and a cluster spreads replicas over racks."),
    _broker(IDENTITY, "process.roles", LIST, (), ListOf(re.compile("broker|controller"), "any of broker, controller"),
            "Accepted for Kafka's configuration files: a Barnabas node is always both."),
    _broker(LISTENERS, "listeners", LIST, ("PLAINTEXT://:9092",), _ADDRESSES,
            "The addresses to listen on, each with the name of its listener. No host means every interface, port 0 a "
            "free one."),
    _broker(LISTENERS, "advertised.listeners", LIST, None, _ADDRESSES,
            "The addresses that clients are told to use, for listeners where they differ from the bound ones."),
    _broker(LISTENERS, "listener.security.protocol.map", STRING, _PROTOCOL_MAP, None,
            "NAME:PROTOCOL pairs. A listener whose name is not a protocol's own needs an entry here; only `PLAINTEXT` "
            "can be served."),
    _broker(LISTENERS, "inter.broker.listener.name", STRING, None, None,
            "The listener through which the brokers of a cluster reach each other; the first one, if it is not set. "
            "If there are others for clients, no limit on connections holds for this one."),
    _broker(LISTENERS, "controller.listener.names", LIST, (), None,
            "Listeners of a Kafka controller. Their addresses in `listeners` and `advertised.listeners` are left out: "
            "Barnabas needs none."),
    _broker(LISTENERS, "metrics.listen", STRING, None, HostAndPort(),
            "Where to serve `/metrics`, `/healthz` and `/readyz` over HTTP, without a login. No host means every "
            "interface, port 0 a free one. Specific to Barnabas."),
    _broker(ZOOKEEPER, "zookeeper.connect", STRING, None, None,
            "Makes the broker one of a cluster: HOST:PORT of the ZooKeeper servers between commas, and then the node "
            "to keep the cluster under, such as `/kafka`. Without it, the broker is alone and keeps the metadata "
            "itself."),
    _broker(ZOOKEEPER, "zookeeper.session.timeout.ms", INT, 6_000, _AT_LEAST_1,
            "A broker that ZooKeeper has not heard from for this long is dead for its cluster. Kafka 3.9.1 has 18 "
            "seconds; here what a machine led that is dead waits no longer than 6."),
    _broker(ZOOKEEPER, "zookeeper.connection.timeout.ms", INT, None, _AT_LEAST_1,
            "How long a start waits for ZooKeeper. If it is not set, `zookeeper.session.timeout.ms` is used."),
    _broker(ZOOKEEPER, "zookeeper.set.acl", BOOLEAN, False, None,
            "Whether only the brokers may change what they create in ZooKeeper. They need an identity for it: "
            "`zookeeper.digest.identity`, or a certificate."),
    _broker(ZOOKEEPER, "zookeeper.digest.identity", PASSWORD, None, None,
            "USER:PASSWORD of ZooKeeper's digest scheme, the same for all brokers. Specific to Barnabas: Kafka has it "
            "in a JAAS file."),
    _broker(ZOOKEEPER, "broker.suspicion.enable", BOOLEAN, True, None,
            "Whether brokers end the ZooKeeper session of a broker whose process is dead (its connections closed, and "
            "new ones are refused), instead of waiting for its timeout. It needs `zookeeper.digest.identity`, so that "
            "the keys of the sessions are for brokers alone. Specific to Barnabas."),
    _broker(ZOOKEEPER, "zookeeper.ssl.client.enable", BOOLEAN, False, None,
            "Whether to connect to ZooKeeper with TLS."),
    _broker(ZOOKEEPER, "zookeeper.ssl.truststore.location", STRING, None, None,
            "The authorities to trust, as a PEM file (no other format). If it is not set, the system's are used."),
    _broker(ZOOKEEPER, "zookeeper.ssl.keystore.location", STRING, None, None,
            "The broker's certificate and private key, in one PEM file (no other format)."),
    _broker(ZOOKEEPER, "zookeeper.ssl.keystore.password", PASSWORD, None, None,
            "The password of the private key, if it is encrypted."),
    _broker(ZOOKEEPER, "zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", OneOf(("HTTPS", "")),
            "Whether a server's certificate must name its host; empty switches that off."),
    _broker(CONNECTIONS, "socket.request.max.bytes", INT, 100 * _MIB, Between(_REQUEST_BYTES_MIN),
            "The largest request. A larger one is refused by closing its connection, before memory is allocated for "
            "it."),
    _broker(CONNECTIONS, "queued.max.request.bytes", LONG, -1, None,
            "Memory for requests that are being read or processed, for all connections together; beyond it, requests "
            "wait in their sockets. Zero or less sets no limit; otherwise at least `socket.request.max.bytes`."),
    _broker(CONNECTIONS, "max.connections", INT, _INT_MAX, _AT_LEAST_0,
            "The most connections at the same time; further ones are closed at once. A client cannot set 0, which "
            "would shut out everybody.", Dynamic.YES),
    _broker(CONNECTIONS, "max.connections.per.ip", INT, _INT_MAX, _AT_LEAST_0,
            "The most connections at the same time from one address. 0 needs `max.connections.per.ip.overrides`, and "
            "a client can set it only if they let its own address in.", Dynamic.YES),
    _broker(CONNECTIONS, "max.connections.per.ip.overrides", STRING, "", PairsWithNumber(),
            "Other limits for single addresses: `10.0.0.1:200,10.0.0.2:5`.", Dynamic.YES),
    _broker(CONNECTIONS, "connections.max.idle.ms", LONG, 10 * _MINUTE_MS, NegativeOrAtLeast(_IDLE_MS_MIN),
            "A connection that is idle for this long is closed; a negative number sets no limit."),
    _broker(CONNECTIONS, "socket.send.buffer.bytes", INT, -1, Between(1, also=(-1,)),
            "The size of a connection's send buffer in the kernel; -1 leaves it to the operating system. (Kafka's "
            "default is 102400.)"),
    _broker(CONNECTIONS, "socket.receive.buffer.bytes", INT, -1, Between(1, also=(-1,)),
            "The size of a connection's receive buffer in the kernel; -1 leaves it to the operating system. (Kafka's "
            "default is 102400, which halves what producers of large batches get through.)"),
    _broker(CONNECTIONS, "socket.listen.backlog.size", INT, 50, _AT_LEAST_1,
            "Connections that the kernel queues while the broker is busy."),
    _broker(CONNECTIONS, "network.awake.us", INT, 100, Between(0, 1_000_000),
            "How many microseconds the broker polls for the next request before it sleeps. Specific to Barnabas: it "
            "halves the round trip of a client that waits for each response. With 0, or on a machine with one "
            "processor, it sleeps at once."),
    _broker(CONNECTIONS, "fetch.max.bytes", INT, 55 * _MIB, Between(1024),
            "The most bytes that one fetch returns, whatever the client asks for; the first batch is always returned "
            "whole."),
    _broker(CONNECTIONS, "max.incremental.fetch.session.cache.slots", INT, 1000, _AT_LEAST_0,
            "How many fetch sessions the broker keeps, that is, consumers whose partitions it remembers between "
            "fetches."),
    _broker(CONNECTIONS, "max.request.partition.size.limit", INT, 2000, _AT_LEAST_1,
            "The most partitions in one DescribeTopicPartitions response; the client asks for the rest."),
    _broker(TOPICS, "auto.create.topics.enable", BOOLEAN, True, None,
            "Whether to create a topic when a client asks for one that does not exist. A mistyped name then creates "
            "one, too: turn this off where topics are created on purpose."),
    _broker(TOPICS, "delete.topic.enable", BOOLEAN, True, None,
            "Whether clients may delete topics."),
    _broker(TOPICS, "num.partitions", INT, 1, Between(1, PARTITIONS_TOGETHER_MAX),
            "Partitions of a topic that is created without a partition count."),
    _broker(TOPICS, "default.replication.factor", INT, 1, _AT_LEAST_1,
            "Replicas of a topic that is created without a replication factor."),
    _broker(REPLICATION, "replica.lag.time.max.ms", LONG, 30_000, _AT_LEAST_1,
            "A follower that has not had everything for this long is no longer in sync."),
    _broker(REPLICATION, "replica.fetch.wait.max.ms", INT, 500, _AT_LEAST_1,
            "How long a leader waits for records before it answers a follower; less than `replica.lag.time.max.ms`."),
    _broker(REPLICATION, "replica.fetch.min.bytes", INT, 1, None,
            "Accepted for Kafka's configuration files: a leader answers a follower as soon as there is anything."),
    _broker(REPLICATION, "replica.fetch.max.bytes", INT, _MIB, _AT_LEAST_0,
            "The most bytes of one partition in an answer to a follower; the first batch is always returned whole."),
    _broker(REPLICATION, "replica.fetch.response.max.bytes", INT, 10 * _MIB, _AT_LEAST_0,
            "The most bytes of an answer to a follower; the first batch is always returned whole."),
    _broker(REPLICATION, "replica.fetch.backoff.ms", INT, 1000, _AT_LEAST_0,
            "How long a follower waits at most before it asks again, after an error."),
    _broker(REPLICATION, "replica.socket.timeout.ms", INT, 30_000, _AT_LEAST_1,
            "A leader that does not answer a follower for this long, and what it may wait, is connected to again."),
    _broker(REPLICATION, "controlled.shutdown.enable", BOOLEAN, True, None,
            "Whether a broker that stops has others lead its partitions first."),
    _broker(REPLICATION, "auto.leader.rebalance.enable", BOOLEAN, True, None,
            "Whether the controller makes preferred replicas leaders again, from time to time, so that each broker "
            "leads its share."),
    _broker(REPLICATION, "leader.imbalance.check.interval.seconds", LONG, 300, _AT_LEAST_1,
            "How often the controller does that."),
    _broker(REPLICATION, "leader.imbalance.per.broker.percentage", INT, 10, None,
            "How many of the partitions that a broker should lead may be led by others, in percent, before it leads "
            "them again."),
    _broker(THREADS_GROUP, "background.threads", INT, 10, THREADS,
            "Threads for work that may block: creating, flushing and removing files, and reading cold data."),
    _broker(THREADS_GROUP, "num.io.threads", INT, 8, _AT_LEAST_1,
            "Accepted for Kafka's configuration files: one event loop serves all requests."),
    _broker(THREADS_GROUP, "num.network.threads", INT, 3, _AT_LEAST_1,
            "Accepted for Kafka's configuration files: one event loop serves all connections."),
    _broker(GROUPS, "group.initial.rebalance.delay.ms", INT, 3000, _AT_LEAST_0,
            "How long a new group waits for more members before its first assignment, and again for each one that "
            "joins meanwhile. `barnabas up` and `barnabas.testing` set 0, as Kafka's example configuration does."),
    _broker(GROUPS, "group.min.session.timeout.ms", INT, 6000, _AT_LEAST_0,
            "The shortest session timeout that a member may ask for; at most `group.max.session.timeout.ms`."),
    _broker(GROUPS, "group.max.session.timeout.ms", INT, 30 * _MINUTE_MS, _AT_LEAST_1,
            "The longest session timeout that a member may ask for."),
    _broker(GROUPS, "group.max.size", INT, _INT_MAX, _AT_LEAST_1,
            "The most members of a group; further ones are refused."),
    _broker(GROUPS, "offsets.topic.num.partitions", INT, 50, Between(1, PARTITIONS_TOGETHER_MAX),
            "Partitions of `__consumer_offsets` when it is created. A group uses the one that its name selects, so "
            "their number must not change afterwards."),
    _broker(GROUPS, "offsets.topic.replication.factor", SHORT, 3, _AT_LEAST_1,
            "Replicas of `__consumer_offsets` when it is created. Until that many brokers have registered, it is not "
            "created and groups cannot be used. `barnabas up` and `barnabas.testing` set 1 for their one broker."),
    _broker(GROUPS, "offsets.topic.segment.bytes", INT, 100 * _MIB, Between(_MIB),
            "Segment size of `__consumer_offsets` when it is created: small, so that it is compacted early and loads "
            "fast."),
    _broker(GROUPS, "offsets.topic.compression.codec", INT, 0, Between(0, 4),
            "Codec of the batches in `__consumer_offsets`: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."),
    _broker(GROUPS, "offsets.retention.minutes", INT, 10_080, _AT_LEAST_1,
            "How long committed offsets are kept after their group has lost its last member or, if it never had one, "
            "after the last commit. Offsets of topics that members are subscribed to are kept."),
    _broker(GROUPS, "offsets.retention.check.interval.ms", LONG, 10 * _MINUTE_MS, _AT_LEAST_1,
            "How often to look for expired offsets."),
    _broker(GROUPS, "offsets.commit.timeout.ms", INT, 5000, _AT_LEAST_1,
            "How long a change of a group waits for all replicas before the client is told to retry."),
    _broker(GROUPS, "offsets.load.buffer.size", INT, 5 * _MIB, _AT_LEAST_1,
            "How many bytes to read at a time when loading the groups of a partition; a larger batch is read whole."),
    _broker(GROUPS, "offset.metadata.max.bytes", INT, 4096, _AT_LEAST_0,
            "The largest metadata that a consumer may commit with an offset; never more than 32767."),
    _broker(SECURITY, "authorizer.class.name", STRING, "", None,
            "Access control lists. Everybody may do everything.", unsupported="access control"),
))
# fmt: on

SERVER_SETTINGS: Final = SettingTable("broker", (*BROKER_SETTINGS, *LOG_SETTINGS))
"""All that a configuration file may set."""

_KRAFT: Final = "a KRaft controller"
_BETWEEN_BROKERS: Final = "replication between brokers"
_QUOTAS: Final = "quotas"
_TRANSACTIONS: Final = "transactions"
_TLS_AND_SASL: Final = "TLS and SASL"
_JMX: Final = "JMX metrics"
_POLICIES: Final = "plug-in policies"
_ZOOKEEPER: Final = "other ways to reach ZooKeeper"
_GROUP_PROTOCOL: Final = "group protocol other than the classic one"

UNSUPPORTED: Final = {
    "add.partitions.to.txn.": _TRANSACTIONS,
    "alter.config.policy.": _POLICIES,
    "alter.log.dirs.": _QUOTAS,
    "broker.heartbeat.": _KRAFT,
    "broker.session.": _KRAFT,
    "client.quota.": _QUOTAS,
    "config.providers": "configuration providers",
    "connection.failed.authentication.": _TLS_AND_SASL,
    "connections.max.reauth.": _TLS_AND_SASL,
    "controller.": _KRAFT,
    "create.topic.policy.": _POLICIES,
    "delegation.token.": _TLS_AND_SASL,
    "delete.records.purgatory.": "purgatories",
    "early.start.listeners": _KRAFT,
    "fetch.purgatory.": "purgatories",
    "follower.": _BETWEEN_BROKERS,
    "group.consumer.": _GROUP_PROTOCOL,
    "group.coordinator.": "separate threads for the group coordinator",
    "group.share.": "share groups",
    "group.streams.": _GROUP_PROTOCOL,
    "initial.broker.registration.": _KRAFT,
    "kafka.metrics.": _JMX,
    "leader.replication.": _BETWEEN_BROKERS,
    "max.connection.creation.rate": _QUOTAS,
    "metadata.": _KRAFT,
    "metric.reporters": _JMX,
    "metrics.": _JMX,
    "num.replica.": _BETWEEN_BROKERS,
    "principal.builder.": _TLS_AND_SASL,
    "producer.purgatory.": "purgatories",
    "queued.max.requests": "request queue: its memory is bounded by queued.max.request.bytes",
    "quota.": _QUOTAS,
    "remote.": "tiered storage",
    "replica.": _BETWEEN_BROKERS,
    "replication.quota.": _QUOTAS,
    "request.timeout.ms": _BETWEEN_BROKERS,
    "sasl.": _TLS_AND_SASL,
    "security.": _TLS_AND_SASL,
    "share.": "share groups",
    "socket.connection.setup.": _BETWEEN_BROKERS,
    "ssl.": _TLS_AND_SASL,
    "telemetry.": "client telemetry",
    "transaction.": _TRANSACTIONS,
    "zookeeper.": _ZOOKEEPER,
}
"""How Kafka's other settings begin, or one whole name, and what Barnabas does not have."""


def missing_feature(name: str) -> str | None:
    """What a setting of Kafka's is about that Barnabas does not have; None when it is no setting of Kafka's."""
    for beginning, feature in UNSUPPORTED.items():
        if name == beginning or (beginning.endswith(".") and name.startswith(beginning)):
            return feature
    if name.startswith("listener.name."):
        return _TLS_AND_SASL
    return None
