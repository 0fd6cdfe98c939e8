"""Which options there are, in their right spelling, and what becomes of Kafka's own settings behind `kafka.`. Pure.

Spark hands options over in lower case. A name that is not here is refused with the nearest one that is; values are
never repeated in a refusal, because a mistyped name may stand before a password.
"""

import difflib
from collections.abc import Collection, Mapping
from typing import Final

from barnabas.base.errors import InvalidSetting

KAFKA_PREFIX: Final = "kafka."

SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""Without effect in a batch, as in the connector."""
BATCH_ONLY: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
SOURCE_OPTIONS: Final = (
    *SUBSCRIPTIONS,
    *STREAM_ONLY,
    *BATCH_ONLY,
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "stopFile",
    "checkpointLocation",
)

CONSUMER_SETTINGS: Final = (
    "bootstrap.servers",
    "client.id",
    "default.api.timeout.ms",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "group.id",
    "isolation.level",
    "max.partition.fetch.bytes",
    "metadata.max.age.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "security.protocol",
    "socket.connection.setup.timeout.ms",
)
"""Settings of Kafka's consumer that mean something here."""

CONSUMER_SETTINGS_WITHOUT_EFFECT: Final = (
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.include.jmx.reporter",
    "check.crcs",
    "client.dns.lookup",
    "client.rack",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "exclude.internal.topics",
    "fetch.min.bytes",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partition.assignment.strategy",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "send.buffer.bytes",
    "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
)
"""Accepted, so that a query moves over as it is; nothing here would work differently by them."""

REFUSED_SETTINGS: Final[Mapping[str, str]] = {
    "auto.offset.reset": "Spark keeps the offsets: set 'startingOffsets' to choose where a new query begins",
    "enable.auto.commit": "Spark keeps the offsets, and progress is committed to 'kafka.group.id' by itself",
    "interceptor.classes": "Java classes cannot run here",
    "key.deserializer": "keys are binary: cast them in the query",
    "value.deserializer": "values are binary: cast them in the query",
}
_SECURITY_PREFIXES: Final = ("ssl.", "sasl.", "security.")


def check_names(
    options: Collection[str], known: Collection[str], settings: Collection[str], refused: Mapping[str, str]
) -> None:
    """InvalidSetting at the first option, of those in lower case, that is unknown or not allowed."""
    spelled = {name.lower(): name for name in known}
    for name in sorted(options):
        if name.startswith(KAFKA_PREFIX):
            _check_setting(name.removeprefix(KAFKA_PREFIX), settings, refused)
        elif name not in spelled:
            everything = [*known, *(KAFKA_PREFIX + setting for setting in settings)]
            raise InvalidSetting(f"unknown option '{name}'{nearest(name, everything)}")


def _check_setting(setting: str, settings: Collection[str], refused: Mapping[str, str]) -> None:
    if setting in refused:
        raise InvalidSetting(f"option '{KAFKA_PREFIX}{setting}' is not supported: {refused[setting]}")
    if setting in settings:
        return
    if setting.startswith(_SECURITY_PREFIXES):
        raise InvalidSetting(f"option '{KAFKA_PREFIX}{setting}' needs TLS or SASL, which this client does not speak")
    near = nearest(KAFKA_PREFIX + setting, [KAFKA_PREFIX + known for known in settings])
    raise InvalidSetting(f"unknown option '{KAFKA_PREFIX}{setting}'{near}")


def nearest(name: str, known: Collection[str]) -> str:
    """For the end of a refusal: the right name that is most like the wrong one, if any is."""
    spelled = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), spelled, n=1)
    return f"; did you mean '{spelled[found[0]]}'?" if found else ""
