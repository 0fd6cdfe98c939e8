"""Produce and InitProducerId, good and bad, for both sides.

Null for the records is not among the cases: Kafka never answers it.
"""

import struct
import time
from collections.abc import Callable
from typing import Any

from barnabas.records.batch import CRC_START, Codec
from barnabas.records.builder import BatchBuilder
from barnabas.records.checksum import compute_crc
from barnabas.wire.apis import ApiKey
from tests.support.kafka import wait_until
from tests.support.side_by_side import CLOSED, Pair, Side, Values, versions

NOW_MS = int(time.time() * 1000)
ORDERS = "orders"
UNEVEN = "uneven-orders"
"""For requests that one side takes and the other refuses."""
SMALL = "small-records"
COMPACTED = "compacted-orders"
APPEND_TIME = "append-time-orders"
OLD_REFUSED = "fresh-orders"
SHORT_OF_REPLICAS = "lonely-orders"
INTERNAL = "__share_group_state"
"""Not that of the groups: what is written here is nothing that Kafka's coordinator could read."""


def batch(count: int = 1, *, key: bytes | None = b"key", value: bytes = b"value", **options: Any) -> bytes:
    """Records a millisecond apart."""
    builder = BatchBuilder(**options)
    for number in range(count):
        builder.append(NOW_MS + number, key, value + b"%d" % number, [("header", b"h")])
    return bytes(builder.build())


def patched(content: bytes, position: int, layout: str, *values: int) -> bytes:
    """Another header, with the checksum that goes with it."""
    changed = bytearray(content)
    struct.pack_into(layout, changed, position, *values)
    changed[CRC_START - 4 : CRC_START] = compute_crc(changed).to_bytes(4, "big")
    return bytes(changed)


def _corrupt(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 0xFF])


def _of_time(timestamp_ms: int, *, is_alone: bool = False) -> bytes:
    builder = BatchBuilder()
    if not is_alone:
        builder.append(NOW_MS, b"key", b"of now")
    builder.append(timestamp_ms, b"key", b"of another time")
    return bytes(builder.build())


_LENGTH_AT, _MAGIC_AT, _ATTRIBUTES_AT, _LAST_DELTA_AT, _MAX_TIMESTAMP_AT, _COUNT_AT = 8, 16, 21, 23, 35, 57
_GOOD = batch(2)

BATCHES: dict[str, tuple[str, bytes]] = {
    "one record": (ORDERS, batch()),
    "three records": (ORDERS, batch(3)),
    "no key": (ORDERS, batch(key=None)),
    "gzip": (ORDERS, batch(5, codec=Codec.GZIP)),
    "snappy": (ORDERS, batch(5, codec=Codec.SNAPPY)),
    "lz4": (ORDERS, batch(5, codec=Codec.LZ4)),
    "zstd": (ORDERS, batch(5, codec=Codec.ZSTD)),
    "base offset not zero": (ORDERS, batch(base_offset=7)),
    "leader epoch of the client": (ORDERS, batch(leader_epoch=5)),
    "no records": (ORDERS, b""),
    "ten bytes": (ORDERS, _GOOD[:10]),
    "sixteen bytes": (ORDERS, _GOOD[:16]),
    "header only": (ORDERS, _GOOD[:61]),
    "batch cut off": (ORDERS, _GOOD[:-3]),
    "bytes after the batch": (ORDERS, _GOOD + b"abc"),
    "two batches": (ORDERS, _GOOD + _GOOD),
    "batch of no records": (ORDERS, bytes(BatchBuilder().build(last_offset=0))),
    "corrupt checksum": (ORDERS, _corrupt(_GOOD)),
    "corrupt checksum of compressed": (ORDERS, _corrupt(batch(5, codec=Codec.ZSTD))),
    "magic 0": (ORDERS, patched(_GOOD, _MAGIC_AT, ">b", 0)),
    "magic 1": (ORDERS, patched(_GOOD, _MAGIC_AT, ">b", 1)),
    "magic 3": (ORDERS, patched(_GOOD, _MAGIC_AT, ">b", 3)),
    "magic -1": (ORDERS, patched(_GOOD, _MAGIC_AT, ">b", -1)),
    "length too small": (ORDERS, patched(_GOOD, _LENGTH_AT, ">i", 10)),
    "length negative": (ORDERS, patched(_GOOD, _LENGTH_AT, ">i", -1)),
    "length too large": (ORDERS, patched(_GOOD, _LENGTH_AT, ">i", 1 << 20)),
    "count too large": (ORDERS, patched(_GOOD, _COUNT_AT, ">i", 3)),
    "count too small": (ORDERS, patched(_GOOD, _COUNT_AT, ">i", 1)),
    "count negative": (ORDERS, patched(_GOOD, _COUNT_AT, ">i", -1)),
    "last offset delta wrong": (ORDERS, patched(_GOOD, _LAST_DELTA_AT, ">i", 5)),
    "last offset delta negative": (ORDERS, patched(_GOOD, _LAST_DELTA_AT, ">i", -1)),
    "largest timestamp wrong": (ORDERS, patched(_GOOD, _MAX_TIMESTAMP_AT, ">q", NOW_MS + 77)),
    "codec 5": (ORDERS, patched(_GOOD, _ATTRIBUTES_AT, ">h", 5)),
    "codec that it is not": (ORDERS, patched(_GOOD, _ATTRIBUTES_AT, ">h", 1)),
    "control batch": (ORDERS, patched(_GOOD, _ATTRIBUTES_AT, ">h", 0x20)),
    "control batch with a producer": (ORDERS, batch(producer_id=5, producer_epoch=0, base_sequence=0, is_control=True)),
    "transactional without producer": (ORDERS, patched(_GOOD, _ATTRIBUTES_AT, ">h", 0x10)),
    "log-append time by the client": (ORDERS, batch(append_time_ms=NOW_MS)),
    "gap between offsets": (ORDERS, b""),
    "time in two hours": (ORDERS, _of_time(NOW_MS + 7_200_000)),
    "time of last year": (ORDERS, _of_time(NOW_MS - 31_536_000_000)),
    "no time": (ORDERS, _of_time(-1)),
    "time before 1970": (ORDERS, _of_time(-2)),
    "time before 1970, where old records are refused": (OLD_REFUSED, _of_time(-2)),
    "time before all others": (ORDERS, _of_time(-(2**63), is_alone=True)),
    "time after all others": (ORDERS, _of_time(2**63 - 1, is_alone=True)),
    "time before the limit": (OLD_REFUSED, _of_time(NOW_MS - 3_600_000)),
    "oversized": (SMALL, batch(value=bytes(1000))),
    "just small enough": (SMALL, batch(value=bytes(800))),
    "record without key for compaction": (COMPACTED, batch(3, key=None)),
    "record with key for compaction": (COMPACTED, batch(3)),
    "append time": (APPEND_TIME, batch(2)),
    "append time, compressed": (APPEND_TIME, batch(2, codec=Codec.LZ4)),
    "internal topic": (INTERNAL, batch()),
    "unknown topic": ("no-such-topic", batch()),
    "name that no topic can have": ("no topic!", batch()),
    "empty name": ("", batch()),
}


def _gap() -> bytes:
    builder = BatchBuilder()
    builder.append(NOW_MS, b"key", b"value")
    builder.append(NOW_MS, b"key", b"value", offset=2)
    return bytes(builder.build())


BATCHES["gap between offsets"] = (ORDERS, _gap())


def request(
    topic: str, content: bytes, *, acks: int = 1, partition: int = 0, transactional_id: str | None = None
) -> Callable[[Side], Values]:
    def make(side: Side) -> Values:
        partitions = [{"index": partition, "records": content}]
        return {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout_ms": 5000,
            "topic_data": [{**side.topic(topic), "partition_data": partitions}],
        }

    return make


def tell_produce(pair: Pair) -> None:
    pair.each(_make_topics)
    pair.each(_wait_for_producer_ids)
    for version in versions(ApiKey.PRODUCE):
        for case, (topic, content) in BATCHES.items():
            pair.compare(case, ApiKey.PRODUCE, version, request(topic, content))
        for acks in (-1, 2, -2):
            pair.compare(f"acks={acks}", ApiKey.PRODUCE, version, request(ORDERS, _GOOD, acks=acks))
        for partition in (1, -1):
            asked = request(ORDERS, _GOOD, partition=partition)
            pair.compare(f"partition {partition}", ApiKey.PRODUCE, version, asked)
        pair.compare("transactional id", ApiKey.PRODUCE, version, request(UNEVEN, _GOOD, transactional_id="t"))
        pair.compare("too few replicas", ApiKey.PRODUCE, version, request(SHORT_OF_REPLICAS, _GOOD, acks=-1))
        pair.compare("nothing at all", ApiKey.PRODUCE, version, lambda side: _nothing())
        pair.compare("good and bad together", ApiKey.PRODUCE, version, _mixed)
        pair.compare("twice the same partition", ApiKey.PRODUCE, version, _twice)
        pair.compare("written by tools", ApiKey.PRODUCE, version, request(INTERNAL, _GOOD), client_id="__admin_client")
        _tell_sequences(pair, version)
        for case in ("one record", "corrupt checksum", "unknown topic"):
            _tell_without_acks(pair, version, case)


def _make_topics(side: Side) -> None:
    side.create_topic(ORDERS)
    side.create_topic(UNEVEN)
    side.create_topic(SHORT_OF_REPLICAS, configs={"min.insync.replicas": "2"})
    side.create_topic(SMALL, configs={"max.message.bytes": "1000"})
    side.create_topic(COMPACTED, configs={"cleanup.policy": "compact"})
    side.create_topic(APPEND_TIME, configs={"message.timestamp.type": "LogAppendTime"})
    side.create_topic(OLD_REFUSED, configs={"message.timestamp.before.max.ms": "1000000"})
    side.create_topic(INTERNAL)


def _wait_for_producer_ids(side: Side) -> None:
    """Kafka's first request for one fetches a block of ids, and is refused meanwhile."""
    wait_until(lambda: side.ask(ApiKey.INIT_PRODUCER_ID, 4, _init())["error_code"] == 0, "producer ids")


def _nothing() -> Values:
    return {"acks": 1, "timeout_ms": 5000, "topic_data": []}


def _mixed(side: Side) -> Values:
    topics = [
        {
            **side.topic(ORDERS),
            "partition_data": [{"index": 0, "records": _GOOD}, {"index": 9, "records": _GOOD}],
        },
        {**side.topic(SMALL), "partition_data": [{"index": 0, "records": _corrupt(_GOOD)}]},
    ]
    return {"acks": -1, "timeout_ms": 5000, "topic_data": topics}


def _twice(side: Side) -> Values:
    partitions = [{"index": 0, "records": batch(1)}, {"index": 0, "records": batch(2)}]
    return {"acks": 1, "timeout_ms": 5000, "topic_data": [{**side.topic(UNEVEN), "partition_data": partitions}]}


def _tell_sequences(pair: Pair, version: int) -> None:
    """An idempotent producer of each version's own."""
    answers = pair.compare("a new producer", ApiKey.INIT_PRODUCER_ID, min(version, 4), lambda side: _init())
    for side, answer in zip(pair.sides, answers, strict=True):
        side.producer_ids["the producer"] = answer["producer_id"]
        side.producer_ids["another producer"] = answer["producer_id"] + 100_000

    def append(case: str, epoch: int, sequence: int, count: int = 2, who: str = "the producer") -> None:
        def make(side: Side) -> Values:
            content = batch(count, producer_id=side.producer_ids[who], producer_epoch=epoch, base_sequence=sequence)
            return request(ORDERS, content)(side)

        pair.compare(case, ApiKey.PRODUCE, version, make)

    append("first of a sequence", 0, 0)
    append("next of a sequence", 0, 2)
    append("duplicate of the last", 0, 2)
    append("duplicate of an earlier one", 0, 0)
    append("gap in the sequence", 0, 9)
    append("overlap in the sequence", 0, 3)
    append("same sequence, other count", 0, 2, count=3)
    append("new epoch, sequence not zero", 1, 4)
    append("new epoch", 1, 0)
    append("old epoch", 0, 4)
    append("unknown producer, sequence not zero", 0, 5, who="another producer")
    append("negative epoch", -1, 7)
    append("negative sequence", 1, -1)
    for number in range(6):
        append("many batches", 1, 2 + number * 2)
    append("duplicate that is forgotten", 1, 0)


def _init(transactional_id: str | None = None, producer_id: int = -1, producer_epoch: int = -1) -> Values:
    return {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": 60_000,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }


def _tell_without_acks(pair: Pair, version: int, case: str) -> None:
    """acks=0 has no answer, but closes the connection on failure: the next request shows which."""
    topic, content = BATCHES[case]

    def follow_up(side: Side) -> Values:
        side.send(side.frame(ApiKey.PRODUCE, version, request(topic, content, acks=0)(side)))
        return {}

    answers = pair.compare(f"without acks: {case}", ApiKey.API_VERSIONS, 0, follow_up, only=lambda _: "open")
    assert (answers[0] == CLOSED) == (case != "one record")


def tell_init_producer_id(pair: Pair) -> None:
    for version in versions(ApiKey.INIT_PRODUCER_ID):
        for case, asked in {
            "a new producer": _init(),
            "with an id and an epoch": _init(None, 5, 3),
            "with an id alone": _init(None, 5),
            "with an epoch alone": _init(None, -1, 3),
            "empty transactional id": _init(""),
            "transactional id": _init("transactional"),
            "timeout of a transaction too long": {**_init("transactional"), "transaction_timeout_ms": 2_000_000_000},
        }.items():
            pair.compare(case, ApiKey.INIT_PRODUCER_ID, version, lambda side, asked=asked: asked)  # type: ignore[misc]
