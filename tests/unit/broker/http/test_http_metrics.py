"""`/metrics`: what Prometheus reads, and that rendering it blocks nobody."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from barnabas.base.metric_table import REQUEST_SECONDS
from barnabas.base.metrics import Metrics, Sample
from barnabas.broker import http
from barnabas.broker.http import process_text
from barnabas.broker.metrics_text import metrics_text
from tests.support.http_broker import APPENDED, GET, LOG_BYTES, WAITS, exchange, samples_of, serving


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
