"""Reading: Fetch with its sessions, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers."""

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.wire.apis import ApiKey
from tests.support.side_by_side import Pair, Side, Values, versions
from tests.support.side_by_side_produce import NOW_MS, batch

READ = "read-orders"
"""Partition 0 has four batches of two records, 1 has one big batch, 2 is empty."""
CUT = "cut-orders"
UNKNOWN = "no-such-topic"
BIG = batch(1, value=bytes(5000))

_READ_COMMITTED = 1
_SESSIONS_FROM = 7


def _fill(side: Side) -> None:
    if READ in side.topic_ids:
        return
    side.create_topic(READ, 3)
    for _ in range(4):
        side.produce(READ, batch(2))
    side.produce(READ, BIG, partition=1)


# --- Fetch ------------------------------------------------------------------------------------------------


def partition(index: int, offset: int = 0, **others: int) -> Values:
    return {
        "partition": index,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
        **others,
    }


def fetch(*topics: tuple[str, Sequence[Values]], **others: Any) -> Callable[[Side], Values]:
    def make(side: Side) -> Values:
        return {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "replica_id": -1,
            "topics": [{**side.topic(name), "partitions": partitions} for name, partitions in topics],
            "forgotten_topics_data": [],
            "rack_id": "",
            **others,
        }

    return make


FETCHES = {
    "from the beginning": fetch((READ, [partition(0)])),
    "from within a batch": fetch((READ, [partition(0, 3)])),
    "from the end": fetch((READ, [partition(0, 8)])),
    "beyond the end": fetch((READ, [partition(0, 9)])),
    "negative offset": fetch((READ, [partition(0, -1)])),
    "empty partition": fetch((READ, [partition(2)])),
    "all partitions": fetch((READ, [partition(0), partition(1), partition(2)])),
    "unknown partition": fetch((READ, [partition(7), partition(0)])),
    "negative partition": fetch((READ, [partition(-1)])),
    "unknown topic": fetch((UNKNOWN, [partition(0)])),
    "unknown topic and a known one": fetch((UNKNOWN, [partition(0)]), (READ, [partition(0)])),
    "no topics": fetch(),
    "topic without partitions": fetch((READ, [])),
    "one partition twice": fetch((READ, [partition(0, 2), partition(0, 6)])),
    "tiny partition limit": fetch((READ, [partition(0, 0, partition_max_bytes=1)])),
    "partition limit of no bytes": fetch((READ, [partition(0, 0, partition_max_bytes=0)])),
    "partition limit below zero": fetch((READ, [partition(0, 0, partition_max_bytes=-1)])),
    "partition limit of two batches": fetch((READ, [partition(0, 0, partition_max_bytes=200)])),
    "tiny limit, first batch whole": fetch((READ, [partition(0), partition(1)]), max_bytes=1),
    "limit of no bytes": fetch((READ, [partition(0)]), max_bytes=0),
    "second partition does not fit": fetch((READ, [partition(1), partition(0)]), max_bytes=5100),
    "second partition's limit is tiny": fetch((READ, [partition(1), partition(0, 0, partition_max_bytes=1)])),
    "committed only": fetch((READ, [partition(0)]), isolation_level=_READ_COMMITTED),
    "committed only, at the end": fetch((READ, [partition(0, 8)]), isolation_level=_READ_COMMITTED),
    "isolation level 2": fetch((READ, [partition(0)]), isolation_level=2),
    "waits for more bytes": fetch((READ, [partition(0)]), min_bytes=1 << 20, max_wait_ms=20),
    "waits for any byte": fetch((READ, [partition(0, 8)]), max_wait_ms=20),
    "no bytes wanted": fetch((READ, [partition(0, 8)]), min_bytes=0, max_wait_ms=20),
    "error does not wait": fetch((READ, [partition(0, 8), partition(9)]), max_wait_ms=20),
    "leader epoch of now": fetch((READ, [partition(0, 0, current_leader_epoch=0)])),
    "leader epoch to come": fetch((READ, [partition(0, 0, current_leader_epoch=3)])),
    "leader epoch of before": fetch((READ, [partition(0, 0, current_leader_epoch=-2)])),
    "last fetched epoch of now": fetch((READ, [partition(0, 2, last_fetched_epoch=0)])),
    "last fetched epoch to come": fetch((READ, [partition(0, 2, last_fetched_epoch=4)])),
    "last fetched epoch of before": fetch((READ, [partition(0, 2, last_fetched_epoch=-2)])),
    "last fetched beyond the end": fetch((READ, [partition(0, 20, last_fetched_epoch=0)])),
    "rack of the client": fetch((READ, [partition(0)]), rack_id="castle"),
    "session id without epoch": fetch((READ, [partition(0)]), session_id=77, session_epoch=-1),
    "unknown session": fetch((READ, [partition(0)]), session_id=77, session_epoch=1),
    "unknown session to close": fetch(session_id=77, session_epoch=-1),
    "negative session epoch": fetch((READ, [partition(0)]), session_id=77, session_epoch=-5),
    "epoch without session": fetch((READ, [partition(0)]), session_epoch=4),
}


def tell_fetch(pair: Pair) -> None:
    pair.each(_fill)
    for version in versions(ApiKey.FETCH):
        for case, request in FETCHES.items():
            pair.compare(case, ApiKey.FETCH, version, request)
        if version >= _SESSIONS_FROM:
            _tell_session(pair, version)


def _tell_session(pair: Pair, version: int) -> None:
    def step(case: str, epoch: int, *topics: tuple[str, Sequence[Values]], **others: Any) -> None:
        def make(side: Side) -> Values:
            return fetch(*topics, session_id=side.session_id, session_epoch=epoch, **others)(side)

        answers = pair.compare(f"session: {case}", ApiKey.FETCH, version, make)
        for side, answer in zip(pair.sides, answers, strict=True):
            side.session_id = answer["session_id"] or side.session_id

    def forget(side_topic: str, index: int) -> Callable[[Side], Values]:
        def make(side: Side) -> Values:
            forgotten = [{**side.topic(side_topic), "partitions": [index]}]
            asked = fetch(session_id=side.session_id, session_epoch=5)(side)
            return {**asked, "forgotten_topics_data": forgotten}

        return make

    for side in pair.sides:
        side.session_id = 0
    step("made", 0, (READ, [partition(0, 8), partition(1, 0), partition(2)]))
    step("nothing new", 1, max_wait_ms=0)
    step("what was sent comes again", 2)
    step("position moves", 3, (READ, [partition(1, 1)]))
    step("unknown partition added", 4, (READ, [partition(8)]))
    pair.compare("session: forgotten", ApiKey.FETCH, version, forget(READ, 8))
    step("news", 6, (READ, [partition(0, 6)]))
    step("epoch of before", 3)
    step("epoch to come", 99)
    step("still there", 7)
    step("closed", -1, (READ, [partition(0, 7)]))
    step("after the end", 8)
    for side in pair.sides:
        side.session_id = 0
    step("made of nothing", 0)
    step("made with errors", 0, (READ, [partition(0, 100)]), (UNKNOWN, [partition(0)]))
    step("error comes again", 1)
    step("made anew", 0, (READ, [partition(2)]))
    step("closed at last", -1)


# --- offsets ----------------------------------------------------------------------------------------------

TIMESTAMPS = {
    "latest": -1,
    "earliest": -2,
    "max timestamp": -3,
    "earliest local": -4,
    "latest tiered": -5,
    "earliest pending upload": -6,
    "no such special value": -7,
    "long ago": 0,
    "time of the first": NOW_MS,
    "time of the second": NOW_MS + 1,
    "time to come": NOW_MS + 3_600_000,
}


def tell_list_offsets(pair: Pair) -> None:
    pair.each(_fill)

    def ask(version: int, case: str, topic: str, *partitions: Values, **others: Any) -> None:
        asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": list(partitions)}], **others}
        pair.compare(case, ApiKey.LIST_OFFSETS, version, lambda side: asked)

    for version in versions(ApiKey.LIST_OFFSETS):
        for case, timestamp in TIMESTAMPS.items():
            for isolation_level in (0, _READ_COMMITTED):
                partitions = [{"partition_index": index, "timestamp": timestamp} for index in range(4)]
                ask(version, f"{case}, isolation {isolation_level}", READ, *partitions, isolation_level=isolation_level)
        for epoch in (-2, -1, 0, 5):
            ask(
                version,
                f"leader epoch {epoch}",
                READ,
                {"partition_index": 0, "current_leader_epoch": epoch, "timestamp": -1},
            )
        ask(version, "unknown topic", UNKNOWN, {"partition_index": 0, "timestamp": -1})
        ask(version, "name that no topic can have", "no topic!", {"partition_index": 0, "timestamp": -1})
        ask(version, "one partition twice", READ, *[{"partition_index": 0, "timestamp": time} for time in (-1, -2)])
        ask(version, "debugging consumer", READ, {"partition_index": 0, "timestamp": -1}, replica_id=-2)
        ask(version, "no partitions", READ)


def tell_offset_for_leader_epoch(pair: Pair) -> None:
    pair.each(_fill)
    for version in versions(ApiKey.OFFSET_FOR_LEADER_EPOCH):
        for topic in (READ, UNKNOWN):
            for index in (0, 2, 9):
                for epoch in (-1, 0, 7):
                    for current in (-1, 0, 7, -2):
                        wanted = {"partition": index, "leader_epoch": epoch, "current_leader_epoch": current}
                        asked = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [wanted]}]}
                        pair.compare(
                            f"{topic}-{index}, epoch {epoch}, current {current}",
                            ApiKey.OFFSET_FOR_LEADER_EPOCH,
                            version,
                            lambda side, asked=asked: asked,  # type: ignore[misc]
                        )


def tell_delete_records(pair: Pair) -> None:
    pair.each(_fill)
    pair.each(lambda side: side.create_topic("compacted-only", configs={"cleanup.policy": "compact"}))
    for version in versions(ApiKey.DELETE_RECORDS):
        topic = f"{CUT}-{version}"

        def fill(side: Side, topic: str = topic) -> None:
            side.create_topic(topic, 2)
            for _ in range(3):
                side.produce(topic, batch(2))

        pair.each(fill)

        def ask(case: str, topic: str, *partitions: tuple[int, int], version: int = version) -> None:
            wanted = [{"partition_index": index, "offset": offset} for index, offset in partitions]
            asked = {"topics": [{"name": topic, "partitions": wanted}], "timeout_ms": 5000}
            pair.compare(case, ApiKey.DELETE_RECORDS, version, lambda side: asked)

        ask("within a batch", topic, (0, 3))
        ask("before the start", topic, (0, 1))
        ask("beyond the end", topic, (0, 7))
        ask("negative offset", topic, (0, -2))
        pair.compare("what is left", ApiKey.FETCH, 12, fetch((topic, [partition(0, 3)])))
        pair.compare("what is gone", ApiKey.FETCH, 12, fetch((topic, [partition(0, 2)])))
        ask("all of it", topic, (0, -1), (1, -1))
        ask("unknown partition", topic, (0, 1), (5, 1))
        ask("unknown topic", UNKNOWN, (0, 1))
        ask("compacted topic", "compacted-only", (0, 0))
        ask("internal topic", "__consumer_offsets", (0, 0))
        ask("no partitions", topic)


def tell_describe_producers(pair: Pair) -> None:
    def fill(side: Side) -> None:
        side.create_topic("producers", 2)
        side.producer_ids["the described one"] = 4_000_000
        for sequence in (0, 2):
            side.produce("producers", batch(2, producer_id=4_000_000, producer_epoch=3, base_sequence=sequence))

    pair.each(fill)
    for topic in ("producers", UNKNOWN, "no topic!"):
        asked = {"topics": [{"name": topic, "partition_indexes": [0, 1, 2, -1]}]}
        pair.compare(topic, ApiKey.DESCRIBE_PRODUCERS, 0, lambda side, asked=asked: asked)  # type: ignore[misc]
