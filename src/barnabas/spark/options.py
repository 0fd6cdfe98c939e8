"""The options of `format("barnabas")` for reading: those of Spark's Kafka connector, parsed strictly. Pure.

Parsing refuses what the connector refuses, and also unknown names (`option_names`), which the connector would ignore.
The driver calls `parse_source_options` before it asks a cluster anything. The result travels to the executors; it holds
no secret.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from barnabas.base.errors import InvalidSetting
from barnabas.base.ids import Offset, TimestampMs, TopicPartition, topic_name_problem
from barnabas.client.broker_connection import ConnectionOptions
from barnabas.client.cluster import ClusterOptions, parse_address
from barnabas.client.offsets import EARLIEST, LATEST, Isolation
from barnabas.client.reading.ranges import RangeOptions
from barnabas.spark import option_names as names
from barnabas.spark.offsets import parse_assignment, parse_offsets

MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000
_POLL_TIMEOUT_MS: Final = 120_000
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_DURATION: Final = re.compile(r"(-?[0-9]{1,15})\s*([a-z]*)")
_DURATION_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_PLACES: Final = {"earliest": EARLIEST, "latest": LATEST}


# --- where to begin and to end ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Everywhere:
    """EARLIEST or LATEST, in every partition."""

    place: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset, EARLIEST or LATEST for each partition, all of which must be named."""

    offsets: Mapping[TopicPartition, Offset]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is at least as late, in every partition."""

    timestamp_ms: TimestampMs


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The same with a time for each partition, all of which must be named."""

    timestamps_ms: Mapping[TopicPartition, TimestampMs]


Bound: TypeAlias = Everywhere | AtOffsets | AtTime | AtTimes


# --- all of them ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """One of the three: topics by name, topics by a pattern of whole names, single partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics like {self.pattern}"
        return ", ".join(map(str, self.topics or self.partitions))


@dataclass(frozen=True, slots=True)
class SourceOptions:
    bootstrap: str
    subscription: TopicChoice
    start: Bound
    end: Bound
    is_latest_when_no_time_matches: bool
    rows_max: int | None
    rows_min: int | None
    trigger_delay_ms_max: int
    partitions_min: int | None
    records_per_partition_max: int | None
    is_failing_on_data_loss: bool
    has_headers: bool
    group: str | None
    lookup_tries: int
    lookup_pause_ms: int
    stop_file: str | None
    checkpoint: Path | None
    cluster: ClusterOptions = field(repr=False)
    reading: RangeOptions = field(repr=False)


def parse_source_options(given: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """InvalidSetting, in one line, when an option is unknown, refused or of a wrong form."""
    options = {name.lower(): value for name, value in given.items()}
    settings = (*names.CONSUMER_SETTINGS, *names.CONSUMER_SETTINGS_WITHOUT_EFFECT)
    names.check_names(options, names.SOURCE_OPTIONS, settings, names.REFUSED_SETTINGS)
    for name in names.BATCH_ONLY:
        if is_streaming and name.lower() in options:
            raise InvalidSetting(f"option '{name}' is only for batch queries: a stream has no end")
    reader = OptionReader(options)
    isolation = reader.isolation()
    start = reader.bound("starting", EARLIEST if not is_streaming else LATEST)
    end = reader.bound("ending", LATEST)
    if not is_streaming:
        _check_batch_bounds(start, end)
    rows_min, rows_max = reader.count("minOffsetsPerTrigger"), reader.count("maxOffsetsPerTrigger")
    if rows_min is not None and rows_max is not None and rows_min > rows_max:
        raise InvalidSetting(f"option 'minOffsetsPerTrigger' ({rows_min}) is above 'maxOffsetsPerTrigger' ({rows_max})")
    cluster = reader.cluster_options()
    return SourceOptions(
        bootstrap=reader.bootstrap(),
        subscription=reader.subscription(),
        start=start,
        end=end,
        is_latest_when_no_time_matches=reader.word("startingOffsetsByTimestampStrategy", ("error", "latest"))
        == "latest",
        rows_max=rows_max,
        rows_min=rows_min,
        trigger_delay_ms_max=reader.duration_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
        partitions_min=reader.count("minPartitions"),
        records_per_partition_max=reader.count("maxRecordsPerPartition"),
        is_failing_on_data_loss=reader.boolean("failOnDataLoss", True),
        has_headers=reader.boolean("includeHeaders", False),
        group=reader.text("kafka.group.id"),
        lookup_tries=reader.whole_number("fetchOffset.numRetries", 3, low=0),
        lookup_pause_ms=reader.whole_number("fetchOffset.retryIntervalMs", 1000, low=0),
        stop_file=reader.text("stopFile"),
        checkpoint=reader.local_directory("checkpointLocation"),
        cluster=cluster,
        reading=reader.range_options(isolation),
    )


def _check_batch_bounds(start: Bound, end: Bound) -> None:
    if start == Everywhere(LATEST) or (isinstance(start, AtOffsets) and LATEST in start.offsets.values()):
        raise InvalidSetting("option 'startingOffsets' cannot be the latest in a batch: there would be nothing to read")
    if end == Everywhere(EARLIEST) or (isinstance(end, AtOffsets) and EARLIEST in end.offsets.values()):
        raise InvalidSetting("option 'endingOffsets' cannot be the earliest in a batch: there would be nothing to read")


class OptionReader:
    """Takes options by their right spelling and says it in every refusal."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def local_directory(self, name: str) -> Path | None:
        """A directory of this machine, as Spark may write it: a path, or a URI of a file."""
        text = self.text(name)
        if text is None:
            return None
        path = re.sub(r"^file:(//)?(?=/)", "", text)
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path):
            raise InvalidSetting(f"option '{name}' must be a directory of the driver's machine; leave it out otherwise")
        return Path(path)

    def word(self, name: str, words: tuple[str, ...]) -> str:
        """One of the words; the first one when the option is not given."""
        text = self.text(name)
        if text is None:
            return words[0]
        if text.strip().lower() not in words:
            raise InvalidSetting(f"option '{name}' must be one of {', '.join(words)}, not {text!r}")
        return text.strip().lower()

    def boolean(self, name: str, default: bool) -> bool:
        return self.word(name, ("true", "false") if default else ("false", "true")) == "true"

    def whole_number(self, name: str, default: int, *, low: int = 1) -> int:
        text = self.text(name)
        if text is None:
            return default
        if not _WHOLE_NUMBER.fullmatch(text.strip()) or int(text) < low:
            raise InvalidSetting(f"option '{name}' must be a whole number, at least {low}, not {text!r}")
        return int(text)

    def count(self, name: str) -> int | None:
        return None if self.text(name) is None else self.whole_number(name, 1)

    def duration_ms(self, name: str, default_ms: int) -> int:
        text = self.text(name)
        if text is None:
            return default_ms
        found = _DURATION.fullmatch(text.strip().lower())
        if found is None or found[2] not in _DURATION_UNITS_MS or int(found[1]) < 0:
            raise InvalidSetting(f"option '{name}' must be a time like 500ms, 30s, 15m or 1h, not {text!r}")
        return int(found[1]) * _DURATION_UNITS_MS[found[2]]

    def bootstrap(self) -> str:
        text = self.text("kafka.bootstrap.servers")
        if text is None or not text.strip():
            raise InvalidSetting("option 'kafka.bootstrap.servers' is missing: give the cluster's address, HOST:PORT")
        addresses = [address.strip() for address in text.split(",") if address.strip()]
        for address in addresses:
            parse_address(address)
        return ",".join(addresses)

    def subscription(self) -> TopicChoice:
        given = [name for name in names.SUBSCRIPTIONS if self.text(name) is not None]
        choice = ", ".join(f"'{name}'" for name in names.SUBSCRIPTIONS)
        if len(given) != 1:
            problem = "is missing" if not given else "is allowed, not " + " and ".join(f"'{name}'" for name in given)
            raise InvalidSetting(f"one of the options {choice} {problem}")
        name = given[0]
        text = self.text(name) or ""
        if not text.strip():
            raise InvalidSetting(f"option '{name}' is empty: it says which topics are read")
        if name == "subscribePattern":
            try:
                re.compile(text.strip())
            except re.error as error:
                raise InvalidSetting(f"option '{name}' is not a pattern: {error}") from None
            return TopicChoice(pattern=text.strip())
        if name == "assign":
            partitions = parse_assignment(name, text)
            if not partitions:
                raise InvalidSetting(f"option '{name}' names no partition")
            return TopicChoice(partitions=partitions)
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        for topic in topics:
            if (name_problem := topic_name_problem(topic)) is not None:
                raise InvalidSetting(f"option '{name}': {name_problem}")
        if not topics:
            raise InvalidSetting(f"option '{name}' names no topic")
        return TopicChoice(topics=topics)

    def bound(self, which: str, default_place: int) -> Bound:
        """A time for all goes before times for each partition, and these go before offsets."""
        name = f"{which}Timestamp"
        if self.text(name) is not None:
            return AtTime(self.whole_number(name, 0, low=0))
        name = f"{which}OffsetsByTimestamp"
        text = self.text(name)
        if text is not None:
            times = parse_offsets(name, text)
            if any(time < 0 for time in times.values()):
                raise InvalidSetting(f"option '{name}' has a negative time")
            return AtTimes(times)
        name = f"{which}Offsets"
        text = self.text(name)
        if text is None:
            return Everywhere(default_place)
        place = _PLACES.get(text.strip().lower())
        if place is not None:
            return Everywhere(place)
        offsets = parse_offsets(name, text)
        if any(offset < EARLIEST for offset in offsets.values()):
            raise InvalidSetting(f"option '{name}' has an offset below -2 (-2 is the earliest, -1 the latest)")
        return AtOffsets(offsets)

    def isolation(self) -> Isolation:
        word = self.word("kafka.isolation.level", ("read_uncommitted", "read_committed"))
        return Isolation.READ_COMMITTED if word == "read_committed" else Isolation.READ_UNCOMMITTED

    def range_options(self, isolation: Isolation) -> RangeOptions:
        default = RangeOptions()
        bytes_max = min(
            self.whole_number("kafka.max.partition.fetch.bytes", default.bytes_max),
            self.whole_number("kafka.fetch.max.bytes", default.bytes_max),
        )
        return RangeOptions(
            isolation=isolation,
            wait_ms_max=self.whole_number("kafka.fetch.max.wait.ms", default.wait_ms_max, low=0),
            bytes_min=min(default.bytes_min, bytes_max),
            bytes_max=bytes_max,
            timeout_seconds=self.whole_number("kafkaConsumer.pollTimeoutMs", _POLL_TIMEOUT_MS) / 1000,
        )

    def cluster_options(self) -> ClusterOptions:
        if self.word("kafka.security.protocol", ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")) != "plaintext":
            raise InvalidSetting("option 'kafka.security.protocol' needs TLS or SASL, which this client does not speak")
        plain = ClusterOptions()
        connection = ConnectionOptions(
            client_id=self.text("kafka.client.id") or "barnabas-spark",
            connect_timeout_seconds=self._seconds(
                "kafka.socket.connection.setup.timeout.ms", plain.connection.connect_timeout_seconds
            ),
            request_timeout_seconds=self._seconds("kafka.request.timeout.ms", plain.connection.request_timeout_seconds),
        )
        return ClusterOptions(
            connection=connection,
            retry_timeout_seconds=self._seconds("kafka.default.api.timeout.ms", plain.retry_timeout_seconds),
            backoff_seconds_min=self._seconds("kafka.retry.backoff.ms", plain.backoff_seconds_min),
            backoff_seconds_max=self._seconds("kafka.retry.backoff.max.ms", plain.backoff_seconds_max),
            metadata_age_seconds_max=self._seconds("kafka.metadata.max.age.ms", plain.metadata_age_seconds_max),
        )

    def _seconds(self, name: str, default_seconds: float) -> float:
        return self.whole_number(name, int(default_seconds * 1000), low=0) / 1000
