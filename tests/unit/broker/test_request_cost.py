"""What the usual requests cost, counted: it must not rise unnoticed.

Times depend on the machine; these figures do not. `LIMITS` is what each request took when it was last looked at: lower
a number when a change saves something; a change that needs more has to say why.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from barnabas.base.uuid import ZERO_UUID
from barnabas.cli.compiled import missing_modules
from barnabas.records.builder import BatchBuilder
from barnabas.wire.apis import ApiKey
from barnabas.wire.fetch import TOPIC_ID_FROM
from barnabas.wire.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
)
from barnabas.wire.fetch_response import FetchResponse, decode_fetch_response
from barnabas.wire.framing import parse_response_header, request_start
from barnabas.wire.messages import decode_response, write_request
from barnabas.wire.produce_request import ProducePartition, ProduceRequest, ProduceTopic, encode_produce_request
from barnabas.wire.produce_response import decode_produce_response
from tests.support.broker_process import BrokerProcess
from tests.support.request_cost import CannotCount, Client, ServedThread, compile_allocations, system_calls, usual

pytestmark = pytest.mark.skipif(
    bool(missing := missing_modules()), reason=f"without compiled modules requests cost more: {', '.join(missing)}"
)


class Cost(NamedTuple):
    """Of one request."""

    frames: int
    """Python functions called, and generators resumed."""
    allocations: int
    """Calls of Python's allocators; what comes from a free list is none."""
    system_calls: int
    """Without those of epoll: how often it is asked depends on whether the next request has come already."""


LIMITS = {
    "Produce": Cost(56, 74, 3),
    "Produce by name, acks=1": Cost(56, 74, 3),
    "Produce, idempotent": Cost(74, 103, 3),
    "Produce to a Fetch that waits": Cost(98, 139, 5),
    "Fetch of many records": Cost(60, 78, 9),
    "Fetch of many records in a session": Cost(68, 86, 9),
    "Fetch of few records in a session": Cost(53, 66, 3),
    "Fetch of nothing": Cost(25, 37, 2),
    "Fetch of nothing in a session": Cost(33, 44, 2),
    "OffsetCommit": Cost(96, 170, 3),
}
"""With CPython 3.11 and uvloop 0.23. A Produce that a Fetch waits for is both requests together."""
ALLOCATIONS_COUNTED_WITH = (3, 11)
"""Other versions of Python allocate more or less for the same code."""
ALLOCATIONS_SLACK = 2
"""A number above 256 is a new object, one below is not; and some come from free lists."""
POLLS_MAX = 2
"""Of epoll, for one request: one that finds it, and one before the broker sleeps."""

OF_TWO_REQUESTS = ("Produce to a Fetch that waits",)
PRODUCE_BY_NAME, PRODUCE_BY_ID = 12, 13
FETCH_BY_NAME, FETCH_BY_ID = 12, 17
OFFSET_COMMIT = 9
WARM_UP = 50
COUNTED = 61
TRACED = 100
WRITTEN, FULL, SMALL = "written", "full", "small"
"""Topics: for Produce; with megabytes of records; with one small batch."""
PRODUCER_IDS = count(4_000)


def framed(key: ApiKey, version: int, body: bytes) -> bytes:
    return request_start(key, version, 7, "cost", len(body)) + body


def body_of(key: ApiKey, version: int, reply: memoryview) -> memoryview:
    return reply[parse_response_header(key, version, reply).body_position :]


def batch_of(records: int, value_bytes: int = 100, **fields: int) -> bytes:
    builder = BatchBuilder(**fields)  # type: ignore[arg-type] # its numbers
    for _ in range(records):
        builder.append(1_700_000_000_000, None, bytes(value_bytes))
    return bytes(builder.build())


class Requests:
    """The usual requests of two connections: each is sent, and its answer looked at."""

    def __init__(self, client: Client, other: Client, topic_ids: dict[str, UUID]) -> None:
        self._client = client
        self._other = other
        self._topic_ids = topic_ids

    def topic(self, name: str, has_id: bool) -> tuple[str, UUID]:
        return ("", self._topic_ids[name]) if has_id else (name, ZERO_UUID)

    # -- Produce -------------------------------------------------------------------------------------------------

    def produce(self, topic: str, batch: bytes, *, version: int = PRODUCE_BY_ID, acks: int = -1) -> int:
        wanted = ProduceTopic(*self.topic(topic, version >= PRODUCE_BY_ID), [ProducePartition(0, batch)])
        body = b"".join(encode_produce_request(version, ProduceRequest(None, acks, 30_000, [wanted])))
        reply = body_of(ApiKey.PRODUCE, version, self._client.ask(framed(ApiKey.PRODUCE, version, body)))
        answer = decode_produce_response(version, reply).topics[0].partitions[0]
        assert answer.error_code == 0, answer
        return answer.base_offset

    def producing(self) -> Callable[[], object]:
        batch = batch_of(1)
        return lambda: self.produce(WRITTEN, batch)

    def producing_by_name(self) -> Callable[[], object]:
        batch = batch_of(1)
        return lambda: self.produce(WRITTEN, batch, version=PRODUCE_BY_NAME, acks=1)

    def producing_idempotently(self) -> Callable[[], object]:
        producer_id, sequences = next(PRODUCER_IDS), count()

        def ask() -> None:
            of_producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": next(sequences)}
            self.produce(WRITTEN, batch_of(1, **of_producer))

        return ask

    def producing_to_a_fetch(self) -> Callable[[], object]:
        batch = batch_of(1)
        end = self.produce(WRITTEN, batch) + 1
        offsets = count(end)

        def ask() -> None:
            offset = next(offsets)
            self._other.send(self.fetch_frame(WRITTEN, offset, wait_ms=30_000))
            self.produce(WRITTEN, batch)
            reply = body_of(ApiKey.FETCH, FETCH_BY_ID, self._other.receive())
            assert decode_fetch_response(FETCH_BY_ID, reply).topics[0].partitions[0].high_watermark == offset + 1

        return ask

    # -- Fetch ---------------------------------------------------------------------------------------------------

    def fetch_frame(
        self, topic: str, offset: int, wait_ms: int = 0, version: int = FETCH_BY_ID, **session: int
    ) -> bytes:
        wanted = FetchPartition(0, -1, offset, -1, -1, 1 << 20)
        topics = [FetchTopic(*self.topic(topic, version >= TOPIC_ID_FROM), [wanted])]
        request = FetchRequest(wait_ms, 1, 50 << 20, topics=topics, **session)
        return framed(ApiKey.FETCH, version, encode_fetch_request(version, request))

    def fetch(self, topic: str, offset: int, bytes_min: int, **session: int) -> FetchResponse:
        frame = self.fetch_frame(topic, offset, **session)
        answer = decode_fetch_response(FETCH_BY_ID, body_of(ApiKey.FETCH, FETCH_BY_ID, self._client.ask(frame)))
        records = answer.topics[0].partitions[0].records if answer.topics else b""
        assert answer.error_code == 0
        assert len(records or b"") >= bytes_min  # type: ignore[arg-type] # a decoded answer has bytes
        return answer

    def fetching(self, topic: str, offset: int, bytes_min: int) -> Callable[[], object]:
        return lambda: self.fetch(topic, offset, bytes_min)

    def fetching_in_a_session(self, topic: str, offset: int, bytes_min: int) -> Callable[[], object]:
        session_id = self.fetch(topic, offset, bytes_min, session_epoch=0).session_id
        assert session_id
        epochs = count(1)
        return lambda: self.fetch(topic, offset, bytes_min, session_id=session_id, session_epoch=next(epochs))

    # -- OffsetCommit --------------------------------------------------------------------------------------------

    def committing(self) -> Callable[[], object]:
        offsets = count(1_000)

        def ask() -> None:
            partition = {"partition_index": 0, "committed_offset": next(offsets), "committed_metadata": ""}
            values: dict[str, Any] = {
                "group_id": "readers",
                "member_id": "",
                "generation_id_or_member_epoch": -1,
                "topics": [{"name": WRITTEN, "partitions": [partition]}],
            }
            frame = framed(
                ApiKey.OFFSET_COMMIT, OFFSET_COMMIT, write_request(ApiKey.OFFSET_COMMIT, OFFSET_COMMIT, values)
            )
            reply = body_of(ApiKey.OFFSET_COMMIT, OFFSET_COMMIT, self._client.ask(frame))
            answer = decode_response(ApiKey.OFFSET_COMMIT, OFFSET_COMMIT, reply)
            assert answer.topics[0].partitions[0].error_code.value == 0, answer

        return ask

    def ask(self, key: ApiKey, version: int, **values: Any) -> Any:
        reply = self._client.ask(framed(key, version, write_request(key, version, values)))
        return decode_response(key, version, body_of(key, version, reply))


MANY_BYTES = 1 << 20
USUAL: dict[str, Callable[[Requests], Callable[[], object]]] = {
    "Produce": Requests.producing,
    "Produce by name, acks=1": Requests.producing_by_name,
    "Produce, idempotent": Requests.producing_idempotently,
    "Produce to a Fetch that waits": Requests.producing_to_a_fetch,
    "Fetch of many records": lambda requests: requests.fetching(FULL, 0, MANY_BYTES),
    "Fetch of many records in a session": lambda requests: requests.fetching_in_a_session(FULL, 0, MANY_BYTES),
    "Fetch of few records in a session": lambda requests: requests.fetching_in_a_session(SMALL, 0, 1),
    "Fetch of nothing": lambda requests: requests.fetching(SMALL, 1, 0),
    "Fetch of nothing in a session": lambda requests: requests.fetching_in_a_session(SMALL, 1, 0),
    "OffsetCommit": Requests.committing,
}


def prepare(client: Client) -> dict[str, UUID]:
    """Topics, filled, and the topic of the groups; returns the topics' ids."""
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        for name in (WRITTEN, FULL, SMALL)
    ]
    asking = Requests(client, client, {})
    created = asking.ask(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout_ms=30_000, validate_only=False)
    topic_ids = {one.name: one.topic_id for one in created.topics}
    requests = Requests(client, client, topic_ids)
    for _ in range(20):
        requests.produce(FULL, batch_of(1_000))
    requests.produce(SMALL, batch_of(1))
    requests.produce(WRITTEN, batch_of(1_000))  # Python keeps the numbers up to 256, and makes the others anew
    requests.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["readers"])
    return topic_ids


GROUP_SETTINGS = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}


class Prepared(NamedTuple):
    """A broker on a thread, and its topics' ids."""

    served: ServedThread
    topic_ids: dict[str, UUID]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    settings = {name.replace(".", "_"): value for name, value in GROUP_SETTINGS.items()}
    with ServedThread(tmp_path_factory.mktemp("served"), **settings) as served:
        with served.client() as client:
            topic_ids = prepare(client)
        yield Prepared(served, topic_ids)


@pytest.fixture
def served(prepared: Prepared) -> ServedThread:
    return prepared.served


@pytest.fixture
def requests(prepared: Prepared) -> Iterator[Requests]:
    """On connections of their own: one that has sent a file's range before takes another way."""
    with prepared.served.client() as client, prepared.served.client() as other:
        yield Requests(client, other, prepared.topic_ids)


class Traced(NamedTuple):
    """A broker in a process, and its topics' ids."""

    process: BrokerProcess
    port: int
    topic_ids: dict[str, UUID]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    with BrokerProcess(tmp_path_factory.mktemp("traced"), {"network.awake.us": "0", **GROUP_SETTINGS}) as process:
        port = int(process.bootstrap.rpartition(":")[2])
        with closing(Client(port)) as client:
            topic_ids = prepare(client)
        yield Traced(process, port, topic_ids)


def warmed_up(requests: Requests, name: str) -> Callable[[], object]:
    ask = USUAL[name](requests)
    for _ in range(WARM_UP):
        ask()
    return ask


@pytest.mark.parametrize("name", LIMITS)
def test_usual_request_enters_no_more_python_frames_than_before(
    served: ServedThread, requests: Requests, name: str
) -> None:
    counts = served.frames_entered(warmed_up(requests, name), COUNTED)
    assert usual(counts) <= LIMITS[name].frames, counts


@pytest.mark.skipif(sys.version_info[:2] != ALLOCATIONS_COUNTED_WITH, reason="the limits are those of another Python")
@pytest.mark.parametrize("name", LIMITS)
def test_usual_request_allocates_no_more_than_before(
    served: ServedThread, requests: Requests, name: str, tmp_path: Path
) -> None:
    try:
        library = compile_allocations(tmp_path)
    except CannotCount as reason:
        pytest.skip(str(reason))
    counts = served.allocations(warmed_up(requests, name), COUNTED, library)
    assert usual(counts) <= LIMITS[name].allocations + ALLOCATIONS_SLACK, counts


@pytest.mark.parametrize("name", LIMITS)
def test_usual_request_leaves_nothing_behind_in_memory(served: ServedThread, requests: Requests, name: str) -> None:
    """Beyond caches that are still being filled, which is less than a block for ten requests."""
    ask = warmed_up(requests, name)
    assert min(served.blocks_kept(ask, COUNTED) for _ in range(3)) < COUNTED / 10


@pytest.mark.parametrize("name", LIMITS)
def test_usual_request_makes_no_more_system_calls_than_before(traced: Traced, tmp_path: Path, name: str) -> None:
    with closing(Client(traced.port)) as client, closing(Client(traced.port)) as other:
        ask = warmed_up(Requests(client, other, traced.topic_ids), name)
        try:
            counts = system_calls(traced.process.pid, lambda: [ask() for _ in range(TRACED)], tmp_path)
        except CannotCount as reason:
            pytest.skip(str(reason))
    polls = sum(counts.pop(poll, 0) for poll in ("epoll_wait", "epoll_pwait", "epoll_pwait2"))
    counts.pop("futex", None)  # of the interpreter's lock, while a worker does a job of its own
    assert round(sum(counts.values()) / TRACED) <= LIMITS[name].system_calls, counts
    assert round(polls / TRACED) <= POLLS_MAX * (1 + (name in OF_TWO_REQUESTS))
