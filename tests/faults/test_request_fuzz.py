"""Requests of every API and version with values that nobody expects: the broker answers, others are served, and what
is left behind can be shown, read and started with again.

`BARNABAS_FUZZ_REQUESTS=1000000` sends as many, in runs with seeds of their own; `BARNABAS_FUZZ_SEED` is the first.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.fuzzed_broker import FuzzedBroker
from tests.support.request_fuzzer import RequestFuzzer

pytestmark = pytest.mark.slow

REQUESTS = int(os.environ.get("BARNABAS_FUZZ_REQUESTS", "800"))
FIRST_SEED = int(os.environ.get("BARNABAS_FUZZ_SEED", "1"))
REQUESTS_PER_RUN = 5_000
SETTINGS = {"offsets.topic.num.partitions": "2", "socket.request.max.bytes": "4000000"}
LIMIT_SECONDS = 60 + REQUESTS // 20


def _runs() -> Iterator[tuple[int, int]]:
    """Seeds, and how many requests of each."""
    for start in range(0, REQUESTS, REQUESTS_PER_RUN):
        yield FIRST_SEED + start // REQUESTS_PER_RUN, min(REQUESTS_PER_RUN, REQUESTS - start)


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "reference"])
def test_any_request_is_answered_and_leaves_a_broker_that_works(tmp_path: Path, is_compiled: bool) -> None:
    for seed, count in _runs():
        began = time.monotonic()
        directory = tmp_path / str(seed)
        directory.mkdir()
        with BrokerProcess(directory, SETTINGS, is_compiled=is_compiled) as process:
            told = _fuzz(process, seed, count)
            process.stop()
        print(f"seed {seed}: {told} in {time.monotonic() - began:.0f} s", flush=True)


def _fuzz(process: BrokerProcess, seed: int, count: int) -> str:
    fuzzer = RequestFuzzer(seed)
    half = count // 2
    told = []
    for number in (half, count - half):
        broker = FuzzedBroker(process.bootstrap, fuzzer)
        try:
            broker.throw(number)
            broker.describe_everything()
        except BaseException as error:
            error.add_note(f"seed {seed}, request {fuzzer.count}; the log ends with:\n{_log(process)[-3000:]}")
            raise
        finally:
            broker.close()
        told.append(f"{broker.answered} answered, {broker.closed} closed, {broker.waited} waited")
        _check_log(process, seed)
        process.kill() if number == half else process.stop()  # what was changed must let it start again
        process.start()
    broker = FuzzedBroker(process.bootstrap, fuzzer)
    broker.describe_everything()
    broker.close()
    _check_log(process, seed)
    return "; ".join(told)


def _log(process: BrokerProcess) -> str:
    return process.log_file.read_text("utf-8", "replace")


def _check_log(process: BrokerProcess, seed: int) -> None:
    """A mistake of the broker's own, if there was one, is in its log with its trace."""
    log = _log(process)
    place = max(log.find("Traceback"), log.find("bug in the broker"))
    assert place < 0, f"seed {seed}: {log[max(0, place - 500) : place + 4000]}"
