"""The options for writing: what is taken over, what is refused, and in which words."""

import re

import pytest

from barnabas.base.errors import InvalidSetting
from barnabas.records.batch import Codec
from barnabas.spark.option_names import check_names
from barnabas.spark.sink_options import (
    PRODUCER_SETTINGS,
    PRODUCER_SETTINGS_WITHOUT_EFFECT,
    REFUSED_SETTINGS,
    SinkOptions,
    parse_sink_options,
)

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def _parsed(**options: str) -> SinkOptions:
    return parse_sink_options(SERVERS | {name.replace("__", "."): value for name, value in options.items()})


def test_defaults_are_idempotent_with_all_acknowledgements() -> None:
    options = _parsed(topic="orders", checkpointlocation="/anywhere")
    assert (options.topic, options.bootstrap) == ("orders", "localhost:9092")
    assert (options.producer.acks, options.producer.is_idempotent, options.producer.codec) == (-1, True, Codec.NONE)
    assert options.producer.record_bytes_max == 1 << 20


def test_producer_settings_reach_the_producer() -> None:
    options = parse_sink_options(
        SERVERS
        | {
            "kafka.acks": "1",
            "kafka.compression.type": "zstd",
            "kafka.compression.zstd.level": "-5",
            "kafka.batch.size": "1000",
            "kafka.buffer.memory": "2000",
            "kafka.max.request.size": "3000000",
            "kafka.delivery.timeout.ms": "4000",
            "kafka.max.block.ms": "500",
            "kafka.client.id": "me",
            "kafka.linger.ms": "10",
        }
    )
    producer = options.producer
    assert (producer.acks, producer.codec, producer.compression_level) == (1, Codec.ZSTD, -5)
    assert (producer.batch_bytes_max, producer.buffer_bytes_max, producer.record_bytes_max) == (1000, 2000, 3_000_000)
    assert producer.request_bytes_max == 3_000_000
    assert (producer.delivery_timeout_seconds, producer.topic_timeout_seconds) == (4.0, 0.5)
    assert options.cluster.connection.client_id == "me"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'kafka.bootstrap.servers' is missing"),
        (SERVERS | {"topik": "x"}, "unknown option 'topik'; did you mean 'topic'?"),
        (SERVERS | {"kafka.compresion.type": "x"}, "did you mean 'kafka.compression.type'?"),
        (SERVERS | {"startingoffsets": "latest"}, "option 'startingOffsets' is for reading"),
        (SERVERS | {"topic": "a/b"}, "option 'topic': "),
        (SERVERS | {"topic": ""}, "option 'topic': a topic name must not be empty"),
        (SERVERS | {"kafka.key.serializer": "x"}, "option 'kafka.key.serializer' is not supported: keys are sent"),
        (SERVERS | {"kafka.transactional.id": "x"}, "every row arrives at least once"),
        (SERVERS | {"kafka.compression.type": "brotli"}, "one of none, gzip, snappy, lz4, zstd, not 'brotli'"),
        (SERVERS | {"kafka.acks": "2"}, "option 'kafka.acks' must be one of all, -1, 1, 0, not '2'"),
        (SERVERS | {"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "needs 'kafka.acks' to be all"),
        (SERVERS | {"kafka.batch.size": "0"}, "option 'kafka.batch.size' must be a whole number, at least 1, not '0'"),
        (
            SERVERS | {"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "10"},
            "must be a whole number from 1 to 9, not 10",
        ),
    ],
    ids=str,
)
def test_wrong_option_is_refused_in_one_line(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(message)) as refused:
        parse_sink_options(options)
    assert "\n" not in str(refused.value)


def test_secret_is_never_repeated() -> None:
    with pytest.raises(InvalidSetting) as refused:
        _parsed(kafka__sasl__jaas__config="password=hunter2")
    assert "hunter2" not in str(refused.value)


def test_text_of_options_names_cluster_and_topic_only() -> None:
    assert repr(_parsed(topic="orders")) == "SinkOptions(bootstrap='localhost:9092', topic='orders')"


def test_settings_are_of_one_kind_each() -> None:
    kinds = [PRODUCER_SETTINGS, PRODUCER_SETTINGS_WITHOUT_EFFECT, tuple(REFUSED_SETTINGS)]
    everything = [name for kind in kinds for name in kind]
    assert len(everything) == len(set(everything))
    check_names([f"kafka.{name}" for name in kinds[0] + kinds[1]], [], kinds[0] + kinds[1], REFUSED_SETTINGS)
