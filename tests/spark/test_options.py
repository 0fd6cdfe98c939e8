"""The source's options: what is understood, what is refused, and with which words. Pure, without Spark."""

import pickle
from typing import Any

import pytest

from barnabas.base.errors import InvalidSetting
from barnabas.base.ids import TopicPartition
from barnabas.client.offsets import EARLIEST, LATEST, Isolation
from barnabas.spark.options import (
    AtOffsets,
    AtTime,
    AtTimes,
    Everywhere,
    SourceOptions,
    TopicChoice,
    parse_source_options,
)

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def parse(*, is_streaming: bool = True, **options: str) -> SourceOptions:
    """With dots in names written as double underscores."""
    given = {"kafka.bootstrap.servers": "h:9092", "subscribe": "a"}
    given.update({name.replace("__", "."): value for name, value in options.items()})
    return parse_source_options({name.lower(): value for name, value in given.items()}, is_streaming=is_streaming)


def refusal(is_streaming: bool = True, **options: str) -> str:
    with pytest.raises(InvalidSetting) as refused:
        parse(is_streaming=is_streaming, **options)
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_defaults_are_the_connectors() -> None:
    stream, batch = parse(), parse(is_streaming=False)
    assert stream.start == Everywhere(LATEST)
    assert (batch.start, batch.end) == (Everywhere(EARLIEST), Everywhere(LATEST))
    assert stream.is_failing_on_data_loss
    assert not stream.has_headers
    assert (stream.rows_min, stream.rows_max, stream.trigger_delay_ms_max) == (None, None, 900_000)
    assert stream.reading.isolation is Isolation.READ_UNCOMMITTED
    assert stream.reading.timeout_seconds == 120
    assert (stream.lookup_tries, stream.lookup_pause_ms) == (3, 1000)


def test_every_option_of_the_connector_is_understood() -> None:
    options = parse(
        startingOffsets='{"a":{"0":5,"1":-2}}',
        maxOffsetsPerTrigger="100",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="30s",
        minPartitions="4",
        maxRecordsPerPartition="1000",
        failOnDataLoss="false",
        includeHeaders="TRUE",
        groupIdPrefix="mine",
        kafka__group__id="billing",
        fetchOffset__numRetries="7",
        fetchOffset__retryIntervalMs="20",
        kafkaConsumer__pollTimeoutMs="5000",
        kafka__isolation__level="read_committed",
        kafka__session__timeout__ms="10000",
    )
    assert options.start == AtOffsets({A0: 5, A1: EARLIEST})
    assert (options.rows_max, options.rows_min, options.trigger_delay_ms_max) == (100, 10, 30_000)
    assert (options.partitions_min, options.records_per_partition_max) == (4, 1000)
    assert not options.is_failing_on_data_loss
    assert options.has_headers
    assert options.group == "billing"
    assert (options.lookup_tries, options.lookup_pause_ms) == (7, 20)
    assert options.reading.timeout_seconds == 5
    assert options.reading.isolation is Isolation.READ_COMMITTED


def test_a_time_for_all_goes_before_times_and_offsets() -> None:
    offsets = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"a":{"0":7}}'}
    assert parse(**offsets).start == AtTimes({A0: 7})
    assert parse(startingTimestamp="9", **offsets).start == AtTime(9)


def test_subscriptions_are_of_three_kinds() -> None:
    assert parse(subscribe=" a, b ,a").subscription == TopicChoice(topics=("a", "b"))
    for name, value, expected in [
        ("subscribepattern", "a.*", TopicChoice(pattern="a.*")),
        ("assign", '{"a":[1,0]}', TopicChoice(partitions=(A0, A1))),
    ]:
        given = {"kafka.bootstrap.servers": "h", name: value}
        assert parse_source_options(given, is_streaming=True).subscription == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "earliest"}, "unknown option 'startingoffset'; did you mean 'startingOffsets'?"),
        ({"kafka__bootstrap__server": "h"}, "did you mean 'kafka.bootstrap.servers'?"),
        ({"bootstrap__servers": "h"}, "did you mean 'kafka.bootstrap.servers'?"),
        ({"kafka__isolation__levl": "x"}, "did you mean 'kafka.isolation.level'?"),
        ({"kafka__auto__offset__reset": "earliest"}, "'startingOffsets'"),
        ({"kafka__enable__auto__commit": "true"}, "not supported"),
        ({"kafka__key__deserializer": "X"}, "not supported"),
        ({"kafka__value__deserializer": "X"}, "not supported"),
        ({"kafka__interceptor__classes": "X"}, "not supported"),
        ({"kafka__security__protocol": "SASL_SSL"}, "TLS or SASL"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"endingTimestamp": "5"}, "a stream has no end"),
        ({"subscribePattern": "a.*"}, "not 'subscribe' and 'subscribePattern'"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribe": "a b"}, "letters, digits"),
        ({"maxOffsetsPerTrigger": "0"}, "at least 1"),
        ({"minPartitions": "x"}, "whole number"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is above"),
        ({"maxTriggerDelay": "soon"}, "a time like"),
        ({"failOnDataLoss": "maybe"}, "one of true, false"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "below -2"),
        ({"startingOffsets": "newest"}, "JSON like"),
        ({"kafka__bootstrap__servers": "h:x"}, "HOST:PORT"),
        ({"kafka__bootstrap__servers": ""}, "is missing"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "one of error, latest"),
    ],
)
def test_refusal_says_what_is_wrong_and_what_is_right(options: dict[str, str], words: str) -> None:
    assert words in refusal(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "cannot be the latest"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "cannot be the latest"),
        ({"endingOffsets": "earliest"}, "cannot be the earliest"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "cannot be the earliest"),
    ],
)
def test_batch_with_a_senseless_bound_is_refused(options: dict[str, str], words: str) -> None:
    assert words in refusal(is_streaming=False, **options)


def test_batch_ignores_limits_of_triggers_as_the_connector_does() -> None:
    assert parse(is_streaming=False, maxOffsetsPerTrigger="5").end == Everywhere(LATEST)


@pytest.mark.parametrize(
    "name", ["kafka.sasl.jaas.config", "kafka.ssl.key.password", "kafka.sasl.jas.config", "passwd"]
)
def test_secret_in_a_refused_option_is_not_repeated(name: str) -> None:
    assert "hunter2" not in refusal(**{name.replace(".", "__"): "hunter2"})


def test_parsed_options_travel_by_pickle() -> None:
    options: Any = parse(startingOffsets='{"a":{"0":5,"1":-2}}')
    assert pickle.loads(pickle.dumps(options)) == options
