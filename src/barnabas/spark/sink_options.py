"""The options of `format("barnabas")` for writing: those of Spark's Kafka connector, parsed strictly. Pure.

`topic` sends every row to one topic; without it the rows' own `topic` column decides. What stands behind `kafka.` is
Kafka's producer settings, in three kinds: those that mean something here, those that are accepted because nothing here
would work differently by them, and those that are refused because somebody would be deceived. The result travels to the
executors; its text names the cluster and the topic only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.base.errors import InvalidSetting
from barnabas.base.ids import topic_name_problem
from barnabas.client.cluster import ClusterOptions
from barnabas.client.producing.sender import ACKS_ALL, ProducerOptions
from barnabas.records.batch import Codec
from barnabas.spark.option_names import SOURCE_OPTIONS, check_names
from barnabas.spark.options import OptionReader

SINK_OPTIONS: Final = ("topic", "checkpointLocation", "queryName")
"""The last two are Spark's own, which it hands on with the others."""

PRODUCER_SETTINGS: Final = (
    "acks",
    "batch.size",
    "bootstrap.servers",
    "buffer.memory",
    "client.id",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delivery.timeout.ms",
    "enable.idempotence",
    "max.block.ms",
    "max.request.size",
    "metadata.max.age.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "security.protocol",
    "socket.connection.setup.timeout.ms",
)
"""Settings of Kafka's producer that mean something here."""

PRODUCER_SETTINGS_WITHOUT_EFFECT: Final = (
    "auto.include.jmx.reporter",
    "client.dns.lookup",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "metadata.max.idle.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retries",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
)
"""Accepted, so that a query moves over as it is. Rows come in whole batches, so nothing lingers; a batch is sent again
until `delivery.timeout.ms` is over."""

REFUSED_SETTINGS: Final[Mapping[str, str]] = {
    "interceptor.classes": "Java classes cannot run here",
    "key.serializer": "keys are sent as they are: make them STRING or BINARY in the query",
    "partitioner.class": "Java classes cannot run here; give rows a 'partition' column to choose partitions yourself",
    "partitioner.ignore.keys": "rows go by their keys, as in other clients; leave the key out, or choose partitions",
    "transaction.timeout.ms": "the sink writes without transactions",
    "transaction.two.phase.commit.enable": "the sink writes without transactions",
    "transactional.id": "the sink writes without transactions: every row arrives at least once",
    "value.serializer": "values are sent as they are: make them STRING or BINARY in the query",
}

BATCH_BYTES_MAX: Final = 256 << 10
REQUEST_BYTES_MAX: Final = 1 << 20
_CODECS: Final = {codec.name.lower(): codec for codec in Codec}
_ACKS: Final = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1, "0": 0}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    bootstrap: str
    topic: str | None
    cluster: ClusterOptions = field(repr=False)
    producer: ProducerOptions = field(repr=False)


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """InvalidSetting, in one line, when an option is unknown, refused or of a wrong form."""
    options = {name.lower(): value for name, value in given.items()}
    for name in SOURCE_OPTIONS:
        if name.lower() in options and name not in SINK_OPTIONS:
            raise InvalidSetting(f"option '{name}' is for reading, and has no effect on writing")
    settings = (*PRODUCER_SETTINGS, *PRODUCER_SETTINGS_WITHOUT_EFFECT)
    check_names(options, SINK_OPTIONS, settings, REFUSED_SETTINGS)
    reader = OptionReader(options)
    topic = reader.text("topic")
    if topic is not None:
        topic = topic.strip()
        if problem := topic_name_problem(topic):
            raise InvalidSetting(f"option 'topic': {problem}")
    return SinkOptions(reader.bootstrap(), topic, reader.cluster_options(), _producer_options(reader))


def _producer_options(reader: OptionReader) -> ProducerOptions:
    default = ProducerOptions()
    acks = _ACKS[reader.word("kafka.acks", tuple(_ACKS))]
    is_idempotent = reader.boolean("kafka.enable.idempotence", True)
    if acks != ACKS_ALL and is_idempotent and reader.text("kafka.enable.idempotence") is not None:
        raise InvalidSetting("option 'kafka.enable.idempotence' needs 'kafka.acks' to be all")
    codec = _CODECS[reader.word("kafka.compression.type", tuple(_CODECS))]
    record_bytes_max = reader.whole_number("kafka.max.request.size", default.record_bytes_max)
    return ProducerOptions(
        acks=acks,
        is_idempotent=is_idempotent,
        codec=codec,
        compression_level=_compression_level(reader, codec),
        batch_bytes_max=reader.whole_number("kafka.batch.size", BATCH_BYTES_MAX),
        buffer_bytes_max=reader.whole_number("kafka.buffer.memory", default.buffer_bytes_max),
        request_bytes_max=max(REQUEST_BYTES_MAX, record_bytes_max),
        record_bytes_max=record_bytes_max,
        delivery_timeout_seconds=reader.whole_number(
            "kafka.delivery.timeout.ms", int(default.delivery_timeout_seconds * 1000)
        )
        / 1000,
        topic_timeout_seconds=reader.whole_number("kafka.max.block.ms", int(default.topic_timeout_seconds * 1000))
        / 1000,
    )


def _compression_level(reader: OptionReader, codec: Codec) -> int | None:
    name = f"kafka.compression.{codec.name.lower()}.level"
    if reader.text(name) is None:
        return None
    low, high = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}[codec]
    level = reader.whole_number(name, 1, low=low)
    if level > high:
        raise InvalidSetting(f"option '{name}' must be a whole number from {low} to {high}, not {level}")
    return level
