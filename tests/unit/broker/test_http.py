import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from barnabas.base.metric_table import REQUEST_SECONDS
from barnabas.base.metrics import Description, Kind, Metrics, Sample
from barnabas.broker import http
from barnabas.broker.health import BrokerState, Health
from barnabas.broker.http import http_port, process_text
from barnabas.broker.metrics_text import metrics_text
from barnabas.net.errors import ListenFailed
from barnabas.net.sockets import SocketNetwork
from barnabas.net.stream import ListenAddress

HOST = "127.0.0.1"
GET = b"GET %s HTTP/1.1\r\nHost: broker\r\n\r\n"
APPENDED = Description(Kind.COUNTER, "appended_bytes_total", "Bytes.")
LOG_BYTES = Description(Kind.GAUGE, "log_bytes", "Sizes.", ("topic",))
WAITS = Description(Kind.HISTOGRAM, "wait_seconds", "Waits.", ("api",), (0.5, 1.0))


@dataclass
class Broker:
    """What the port is told of a broker."""

    metrics: Metrics
    health: Health
    port: int = 0
    preparations: int = 0

    async def prepare(self):
        await asyncio.sleep(0)
        self.preparations += 1


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request):
    def run_on_loop(coroutine):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(coroutine, 20))

    return run_on_loop


@asynccontextmanager
async def serving(state=BrokerState.READY, executor=None):
    health = Health(state, ("/data/b is offline: gone",), ("/data/b",), ("/data/c",))
    broker = Broker(Metrics(), health)
    own_executor = ThreadPoolExecutor(1)
    address = ListenAddress(HOST, 0)
    try:
        async with http_port(
            SocketNetwork(), address, broker.metrics, lambda: broker.health, broker.prepare, executor or own_executor
        ) as listening:
            broker.port = listening.port
            yield broker
    finally:
        own_executor.shutdown()


async def exchange(port, request):
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request)
    reply = await reader.read()
    writer.close()
    await writer.wait_closed()
    return parse(reply)


async def rest_of(reader):
    """What still comes. Whether the end of it is an orderly one is left to the operating system."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def parse(reply):
    head, _, body = reply.partition(b"\r\n\r\n")
    status_line, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return Answer(int(status_line.split()[1]), headers, body)


def samples_of(text):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_metrics_are_shown_as_prometheus_reads_them(run):
    async def scenario():
        async with serving() as broker:
            broker.metrics.counter(APPENDED).value += 2**60
            broker.metrics.readings(LOG_BYTES, lambda: [Sample(('a"\\\n',), 7)])
            broker.metrics.histograms(WAITS).of("Fetch").observe(0.75)
            return await exchange(broker.port, GET % b"/metrics")

    answer = run(scenario())
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert int(answer.headers["content-length"]) == len(answer.body)
    samples = samples_of(answer.body)
    assert samples["appended_bytes_total",] == 2**60
    assert samples["log_bytes", 'a"\\\n'] == 7
    assert samples["wait_seconds_bucket", "Fetch", "0.5"] == 0
    assert samples["wait_seconds_bucket", "Fetch", "1.0"] == 1
    assert samples["wait_seconds_bucket", "Fetch", "+Inf"] == 1
    assert samples["wait_seconds_count", "Fetch"] == 1
    assert samples["wait_seconds_sum", "Fetch"] == 0.75


def test_metrics_beyond_the_socket_buffers_arrive_whole(run):
    async def scenario():
        async with serving() as broker:
            samples = [Sample((str(partition) * 1000,), partition) for partition in range(5000)]
            broker.metrics.readings(LOG_BYTES, lambda: samples)
            return await exchange(broker.port, GET % b"/metrics")

    answer = run(scenario())
    assert len(answer.body) == int(answer.headers["content-length"]) > 10 << 20
    assert answer.body.count(b"\nlog_bytes{") == 5000


def test_other_work_gets_its_turn_while_many_metrics_are_written(run):
    async def scenario():
        turns = 0

        async def take_turns():
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        def read():
            nonlocal turns
            turns = 0
            yield from (Sample((str(number),), number) for number in range(50 * http._SAMPLES_TOGETHER))
            turns_at_the_end.append(turns)

        turns_at_the_end = []
        async with serving() as broker:
            broker.metrics.readings(LOG_BYTES, read)
            other = asyncio.create_task(take_turns())
            assert (await exchange(broker.port, GET % b"/metrics")).status == 200
            other.cancel()
        return turns_at_the_end

    (turns,) = run(scenario())
    assert turns >= 49


def test_requests_that_come_together_share_the_work(run):
    async def scenario():
        async with serving() as broker:
            answers = await asyncio.gather(*[exchange(broker.port, GET % b"/metrics") for _ in range(5)])
            assert {answer.status for answer in answers} == {200}
            together = broker.preparations
            await exchange(broker.port, GET % b"/metrics")
            return together, broker.preparations

    together, after = run(scenario())
    assert 1 <= together < 5
    assert after == together + 1


def test_metrics_without_samples_have_no_lines():
    metrics = Metrics()
    metrics.histograms(WAITS).of("Fetch")
    metrics.readings(LOG_BYTES, list)
    assert metrics_text(metrics) == b""


def test_metrics_tell_of_the_process():
    assert samples_of(process_text())["process_resident_memory_bytes",] > 1 << 20


@pytest.mark.parametrize(("value", "text"), [(0.1, b"0.1"), (2.0**70, b"1.1805916207174113e+21"), (7, b"7")])
def test_numbers_keep_their_digits(value, text):
    metrics = Metrics()
    metrics.readings(LOG_BYTES, lambda: [Sample(("a",), value)])
    assert metrics_text(metrics).splitlines()[-1] == b'log_bytes{topic="a"} ' + text


@pytest.mark.parametrize(("value", "text"), [(float("inf"), b"+Inf"), (float("-inf"), b"-Inf"), (float("nan"), b"NaN")])
def test_numbers_that_are_none_have_the_names_of_prometheus(value, text):
    metrics = Metrics()
    metrics.readings(LOG_BYTES, lambda: [Sample(("a",), value)])
    assert metrics_text(metrics).splitlines()[-1] == b'log_bytes{topic="a"} ' + text


def test_metrics_text_of_request_times_has_cumulative_buckets():
    metrics = Metrics()
    produce = metrics.histograms(REQUEST_SECONDS).of("Produce")
    for seconds in (0.000_01, 0.002, 0.002, 99.0):
        produce.observe(seconds)
    samples = samples_of(metrics_text(metrics))
    buckets = [value for key, value in samples.items() if key[0] == "barnabas_request_seconds_bucket"]
    assert buckets == sorted(buckets)
    assert buckets[0] == 1
    assert samples["barnabas_request_seconds_bucket", "Produce", "0.0025"] == 3
    assert buckets[-1] == samples["barnabas_request_seconds_count", "Produce"] == 4


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


def test_metrics_come_without_the_process_when_no_worker_is_free(run, monkeypatch):
    monkeypatch.setattr(http, "_PROCESS_SECONDS_MAX", 0.01)

    async def scenario(executor):
        is_blocked = threading.Event()
        executor.submit(is_blocked.wait)
        async with serving(executor=executor) as broker:
            broker.metrics.counter(APPENDED)
            answer = await exchange(broker.port, GET % b"/metrics")
            is_blocked.set()
            return answer

    with ThreadPoolExecutor(1) as executor:
        answer = run(scenario(executor))
    assert answer.status == 200
    assert samples_of(answer.body) == {("appended_bytes_total",): 0}


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
                broker.prepare,
                None,
            )
            with pytest.raises(ListenFailed, match=str(broker.port)):
                await other.__aenter__()

    run(scenario())


def test_metrics_that_cannot_be_rendered_are_an_error_of_ours_that_is_logged_once(run, caplog):
    reported = []

    async def scenario():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        async with serving() as broker:
            broker.metrics.readings(LOG_BYTES, lambda: [Sample(("a",), "x")])
            return [await exchange(broker.port, GET % b"/metrics") for _ in range(3)]

    assert [answer.status for answer in run(scenario())] == [500] * 3
    assert [record.exc_info[0] for record in caplog.records] == [TypeError]
    assert reported == []


def test_failed_assertion_in_the_metrics_goes_to_the_loops_handler(run):
    reported = []

    async def scenario():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        async with serving() as broker:

            def fail():
                raise AssertionError("the state is wrong")

            broker.metrics.readings(LOG_BYTES, fail)
            return await exchange(broker.port, GET % b"/metrics")

    assert run(scenario()).status == 500
    assert [str(error) for error in reported] == ["the state is wrong"]
