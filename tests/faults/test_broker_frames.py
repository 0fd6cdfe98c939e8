"""A broker process under bad input: others are served on, memory stays flat, and nothing corrupt is stored."""

import random
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from barnabas.records.batch import CRC_START
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode
from barnabas.wire.framing import request_start
from barnabas.wire.messages import write_request
from tests.support.broker_process import BrokerProcess
from tests.support.side_by_side import CLOSED, Side, Values
from tests.support.side_by_side_fetch import fetch, partition
from tests.support.side_by_side_produce import batch, request

pytestmark = pytest.mark.slow

TOPIC = "orders"
GROWTH_BYTES_MAX = 24 << 20
CONNECTIONS = 400
LENGTH = struct.Struct(">i")

# Mutations of these ask for nothing that lasts or that takes long.
MUTATED: dict[ApiKey, Values] = {
    ApiKey.PRODUCE: {
        "acks": 1,
        "timeout_ms": 100,
        "topic_data": [{"name": "none", "partition_data": [{"index": 0, "records": batch(3)}]}],
    },
    ApiKey.LIST_OFFSETS: {
        "replica_id": -1,
        "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    },
    ApiKey.METADATA: {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False},
    ApiKey.API_VERSIONS: {"client_software_name": "client", "client_software_version": "1"},
    ApiKey.DESCRIBE_CONFIGS: {
        "resources": [{"resource_type": 2, "resource_name": TOPIC, "configuration_keys": ["retention.ms"]}]
    },
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": TOPIC}]},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"auto.create.topics.enable": "false", "socket.request.max.bytes": "1000000"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as process:
        client = Side("Barnabas", process.bootstrap)
        client.create_topic(TOPIC)
        client.produce(TOPIC, batch(1, value=bytes(900_000)))
        _throw(process, [random.Random(1).randbytes(50) for _ in range(50)])  # what is made once is made now
        client.close()
        yield process
        assert process.is_running


@pytest.fixture
def witness(broker: BrokerProcess) -> Iterator[Side]:
    """A good client, whose one connection must last through all of it."""
    side = Side("Barnabas", broker.bootstrap)
    side.learn_topic(TOPIC)
    yield side
    assert _is_served(side)
    side.close()


def _is_served(side: Side) -> bool:
    asked = {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}
    answer = side.ask(ApiKey.METADATA, 12, asked)
    return answer != CLOSED and bool(answer["topics"][0]["error_code"] == ErrorCode.NONE)


def _address(broker: BrokerProcess) -> tuple[str, int]:
    host, _, port = broker.bootstrap.rpartition(":")
    return host, int(port)


def _throw(broker: BrokerProcess, frames: list[bytes]) -> None:
    """Each on a connection of its own, of which some end at once and some with a reset."""
    for number, frame in enumerate(frames):
        with socket.create_connection(_address(broker), timeout=60) as client:
            if number % 3 == 0:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            try:
                client.sendall(frame)
            except ConnectionError:
                continue  # it was refused before it was all sent


def _well_formed(chance: random.Random) -> tuple[ApiKey, int, bytes]:
    api_key = chance.choice(list(MUTATED))
    version = chance.randrange(APIS[api_key].version_min, min(APIS[api_key].version_max, 12) + 1)
    return api_key, version, write_request(api_key, version, MUTATED[api_key])


def _framed(api_key: int, version: int, body: bytes) -> bytes:
    return request_start(api_key, version, 1, "fuzzer", len(body)) + body


def _random_bytes(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(1, 300))


def _random_frame(chance: random.Random) -> bytes:
    content = chance.randbytes(chance.randrange(300))
    return LENGTH.pack(len(content)) + content


def _wrong_length(chance: random.Random) -> bytes:
    lengths = (-1, -(2**31), 2**31 - 1, 1_000_001, 999_999, 0, 1, 7)
    return LENGTH.pack(chance.choice(lengths)) + _random_bytes(chance)


def _truncated(chance: random.Random) -> bytes:
    frame = _framed(*_well_formed(chance))
    return frame[: chance.randrange(len(frame))]


def _random_body(chance: random.Random) -> bytes:
    api = chance.choice(list(APIS.values()))
    return _framed(api.key, chance.randrange(api.version_min, api.version_max + 1), _random_bytes(chance))


def _mutated_body(chance: random.Random) -> bytes:
    api_key, version, body = _well_formed(chance)
    changed = bytearray(body)
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(changed) + 1)
        match chance.randrange(4):
            case 0:
                changed[place : place + 1] = bytes([chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))])
            case 1:
                changed[place:place] = chance.randbytes(chance.randrange(1, 9))
            case 2:
                del changed[place : place + chance.randrange(1, 9)]
            case _:
                changed[place : place + 4] = LENGTH.pack(chance.choice((-1, -2, 2**31 - 1, 1 << 20)))
    return _framed(api_key, version, bytes(changed))


@pytest.mark.parametrize("make", [_random_bytes, _random_frame, _wrong_length, _truncated, _random_body, _mutated_body])
def test_bad_frames_leave_others_served_and_memory_flat(
    broker: BrokerProcess, witness: Side, make: Callable[[random.Random], bytes]
) -> None:
    chance = random.Random(make.__name__)
    before = broker.resident_bytes
    for _ in range(CONNECTIONS // 20):
        _throw(broker, [make(chance) for _ in range(20)])
        assert _is_served(witness)
    assert broker.resident_bytes - before < GROWTH_BYTES_MAX


def test_unreadable_body_closes_the_connection_and_no_other(broker: BrokerProcess, witness: Side) -> None:
    victim = Side("Barnabas", broker.bootstrap)
    assert victim.ask(ApiKey.METADATA, 12, b"\x7f\xff\xff\xff\xff") == CLOSED
    assert _is_served(witness)
    assert _is_served(victim)  # on a new connection
    victim.close()


@pytest.mark.parametrize("length", [-1, 1_000_001, 2**31 - 1])
def test_length_beyond_the_limit_closes_before_anything_is_read(broker: BrokerProcess, length: int) -> None:
    with socket.create_connection(_address(broker), timeout=60) as client:
        client.sendall(LENGTH.pack(length))
        assert client.recv(1) == b""


def test_half_open_connections_cost_little_and_no_other(broker: BrokerProcess, witness: Side) -> None:
    before = broker.resident_bytes
    halves = [b"", b"\0", LENGTH.pack(900_000), LENGTH.pack(900_000) + bytes(1000)]
    clients = [socket.create_connection(_address(broker), timeout=60) for _ in range(CONNECTIONS)]
    try:
        for number, client in enumerate(clients):
            client.sendall(halves[number % len(halves)])
        for _ in range(20):
            assert _is_served(witness)
        assert broker.resident_bytes - before < GROWTH_BYTES_MAX
    finally:
        for client in clients:
            client.close()


def test_readers_that_do_not_read_cost_bounded_memory(broker: BrokerProcess, witness: Side) -> None:
    asked = fetch((TOPIC, [partition(0)]))(witness)
    frames = witness.frame(ApiKey.FETCH, 12, asked) * 200  # 180 MB of answers for each client
    metadata = witness.frame(ApiKey.METADATA, 12, {"topics": None, "allow_auto_topic_creation": False}) * 2000
    before = broker.resident_bytes
    clients = [socket.create_connection(_address(broker), timeout=60) for _ in range(30)]
    try:
        for number, client in enumerate(clients):
            client.setblocking(False)
            client.send(frames if number % 2 else metadata)
        for _ in range(50):
            assert _is_served(witness)
        assert broker.resident_bytes - before < GROWTH_BYTES_MAX
    finally:
        for client in clients:
            client.close()


def test_corrupt_batch_is_refused_and_nothing_of_it_is_stored(broker: BrokerProcess, witness: Side) -> None:
    topic = "pristine"
    witness.create_topic(topic)
    good = batch(2)
    # From the checksum on, a changed bit is a wrong checksum, wherever it is.
    for place in range(CRC_START - 4, len(good)):
        corrupt = bytearray(good)
        corrupt[place] ^= 1 << place % 8
        answer = witness.ask(ApiKey.PRODUCE, 12, request(topic, bytes(corrupt))(witness))
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == ErrorCode.CORRUPT_MESSAGE, place
    log = broker.data_directory / f"{topic}-0" / f"{0:020}.log"
    assert log.stat().st_size == 0
    witness.produce(topic, good)
    answer = witness.ask(ApiKey.FETCH, 12, fetch((topic, [partition(0)]))(witness))
    stored = answer["responses"][0]["partitions"][0]
    assert stored["high_watermark"] == 2
    assert bytes(stored["records"])[CRC_START:] == good[CRC_START:]


def test_null_for_records_is_refused(witness: Side) -> None:
    asked = {
        "acks": 1,
        "timeout_ms": 100,
        "topic_data": [{**witness.topic(TOPIC), "partition_data": [{"index": 0, "records": None}]}],
    }
    answer = witness.ask(ApiKey.PRODUCE, 12, asked)
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == ErrorCode.INVALID_RECORD


def test_log_has_no_traceback(broker: BrokerProcess) -> None:
    """After all of the above."""
    assert "Traceback" not in broker.log_file.read_text()
