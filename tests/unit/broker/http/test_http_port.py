"""The HTTP port: `/health`, requests in any shape, peers that leave or stall, limits and closing."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.broker import http
from barnabas.broker.health import BrokerState
from barnabas.broker.http import http_port
from barnabas.broker.readiness import Harm, Readiness
from barnabas.net.errors import ListenFailed
from barnabas.net.sockets import SocketNetwork
from barnabas.net.stream import ListenAddress
from tests.support.http_broker import GET, HOST, exchange, parse, rest_of, serving


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (BrokerState.STARTING, 503),
        (BrokerState.READY, 200),
        (BrokerState.UNAVAILABLE, 503),
        (BrokerState.STOPPING, 503),
    ],
)
def test_health_tells_the_state(run, state, status):
    async def scenario():
        async with serving(state) as broker:
            return await exchange(broker.port, GET % b"/healthz?verbose=1")

    answer = run(scenario())
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.body) == {
        "state": state.value,
        "problems": ["/data/b is offline: gone"],
        "offline_directories": ["/data/b"],
        "full_directories": ["/data/c"],
    }


def test_readiness_tells_what_stopping_the_broker_would_do(run):
    async def scenario():
        async with serving() as broker:
            safe = await exchange(broker.port, GET % b"/readyz")
            broker.readiness = Readiness(
                ("no controller",),
                {Harm.OFFLINE: 1, Harm.BELOW_MINIMUM: 20},
                ((TopicPartition("orders", 3), "would be offline"),),
            )
            return safe, await exchange(broker.port, GET % b"/readyz?verbose=1")

    safe, harmful = run(scenario())
    assert (safe.status, harmful.status) == (200, 503)
    assert safe.headers["content-type"] == "application/json"
    nothing = {"problems": [], "would_be_offline": 0, "would_be_below_minimum": 0, "partitions": []}
    assert json.loads(safe.body) == {"is_safe_to_stop": True, **nothing}
    assert json.loads(harmful.body) == {
        "is_safe_to_stop": False,
        "problems": ["no controller"],
        "would_be_offline": 1,
        "would_be_below_minimum": 20,
        "partitions": [{"partition": "orders-3", "reason": "would be offline"}],
    }


def test_readiness_of_a_broker_that_starts_is_not_known(run):
    async def scenario():
        async with serving() as broker:
            broker.readiness = Readiness(("the broker is starting",))
            return await exchange(broker.port, GET % b"/readyz")

    answer = run(scenario())
    assert answer.status == 503
    assert json.loads(answer.body)["would_be_offline"] is None


def test_readiness_that_is_asked_for_together_is_found_out_once(run):
    async def scenario():
        async with serving() as broker:
            answers = await asyncio.gather(*(exchange(broker.port, GET % b"/readyz") for _ in range(2)))
            return [one.status for one in answers], broker.readings

    statuses, readings = run(scenario())
    assert statuses == [200, 200]
    assert 1 <= readings <= 2


def test_health_is_answered_while_metrics_are_being_rendered(run):
    async def scenario(executor):
        is_blocked = threading.Event()
        blocking = executor.submit(is_blocked.wait)
        async with serving(executor=executor) as broker:
            metrics = asyncio.create_task(exchange(broker.port, GET % b"/metrics"))
            health = await exchange(broker.port, GET % b"/healthz")
            assert not metrics.done()
            is_blocked.set()
            await asyncio.wrap_future(blocking)
            return health.status, (await metrics).status

    with ThreadPoolExecutor(1) as executor:
        assert run(scenario(executor)) == (200, 200)


def test_request_in_single_bytes_is_answered(run):
    async def scenario():
        async with serving() as broker:
            reader, writer = await asyncio.open_connection(HOST, broker.port)
            for byte in GET % b"/healthz":
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            reply = await reader.read()
            writer.close()
            return parse(reply)

    assert run(scenario()).status == 200


def test_peer_that_stops_sending_still_gets_its_answer(run):
    async def scenario():
        async with serving() as broker:
            reader, writer = await asyncio.open_connection(HOST, broker.port)
            writer.write(GET % b"/metrics")
            writer.write_eof()
            reply = await reader.read()
            writer.close()
            return parse(reply)

    assert run(scenario()).status == 200


def test_peer_that_goes_on_sending_gets_its_answer_and_an_end(run):
    async def scenario():
        async with serving() as broker:
            reader, writer = await asyncio.open_connection(HOST, broker.port)
            writer.write(b"POST /metrics HTTP/1.1\r\nHost: broker\r\nContent-Length: 1000000\r\n\r\n")
            writer.write(bytes(1_000_000))
            reply = await reader.read()
            writer.close()
            await writer.wait_closed()
            return parse(reply)

    assert run(scenario()).status == 405


def test_head_has_the_headers_and_no_body(run):
    async def scenario():
        async with serving() as broker:
            return await exchange(broker.port, b"HEAD /healthz HTTP/1.1\r\nHost: broker\r\n\r\n")

    answer = run(scenario())
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (GET % b"/", 404),
        (GET % b"/metrics/x", 404),
        (b"POST /metrics HTTP/1.1\r\nHost: broker\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"\x00\x00\x00\x12 not http\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: broker\r\nX: " + b"x" * 9000, 431),
    ],
)
def test_other_requests_are_refused(run, request_bytes, status):
    async def scenario():
        async with serving() as broker:
            refused = await exchange(broker.port, request_bytes)
            return refused, await exchange(broker.port, GET % b"/healthz")

    refused, after = run(scenario())
    assert refused.status == status
    assert refused.body
    assert after.status == 200


def test_peer_that_leaves_within_a_request_leaves_nothing_behind(run):
    async def scenario():
        async with serving() as broker:
            _, writer = await asyncio.open_connection(HOST, broker.port)
            writer.write(b"GET /met")
            writer.transport.abort()
            return await exchange(broker.port, GET % b"/healthz")

    assert run(scenario()).status == 200


def test_peer_that_sends_no_request_is_cut_off_at_the_deadline(run, monkeypatch):
    monkeypatch.setattr(http, "_EXCHANGE_SECONDS_MAX", 0.01)

    async def scenario():
        async with serving() as broker:
            reader, writer = await asyncio.open_connection(HOST, broker.port)
            writer.write(b"GET /met")
            assert await rest_of(reader) == b""
            writer.close()

    run(scenario())


def test_connections_over_the_limit_are_closed_at_once(run, monkeypatch):
    monkeypatch.setattr(http, "_CONNECTIONS_MAX", 1)

    async def scenario():
        async with serving() as broker:
            first_reader, first_writer = await asyncio.open_connection(HOST, broker.port)
            second_reader, second_writer = await asyncio.open_connection(HOST, broker.port)
            assert await rest_of(second_reader) == b""
            second_writer.close()
            first_writer.write(GET % b"/healthz")
            assert parse(await first_reader.read()).status == 200
            first_writer.close()

    run(scenario())


def test_closing_the_port_ends_open_connections_and_frees_the_address(run):
    async def scenario():
        async with serving() as broker:
            reader, writer = await asyncio.open_connection(HOST, broker.port)
            writer.write(b"GET /met")
            assert (await exchange(broker.port, GET % b"/healthz")).status == 200  # so the first one was accepted too
        assert await rest_of(reader) == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(HOST, broker.port)

    run(scenario())


def test_taken_address_is_said_as_such(run):
    async def scenario():
        async with serving() as broker:
            other = http_port(
                SocketNetwork(),
                ListenAddress(HOST, broker.port),
                broker.metrics,
                lambda: broker.health,
                broker.read_readiness,
                broker.prepare,
                None,
            )
            with pytest.raises(ListenFailed, match=str(broker.port)):
                await other.__aenter__()

    run(scenario())
