"""`barnabas up --brokers`: real brokers with a real ZooKeeper, from the start through deaths to Ctrl-C."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.filesystem import LocalFileSystem
from barnabas.cli.zookeeper.zookeeper_jars import ZooKeeperProgram
from barnabas.client.blocking import BlockingClient
from tests.support.cluster_process import COMMAND, ENVIRONMENT, cluster_process
from tests.support.kafka import wait_until

pytestmark = pytest.mark.slow

PARTITIONS = 12


def described(bootstrap: str) -> dict[str, Any]:
    command = [*COMMAND, "cluster", "describe", "--json", "-b", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=True)
    view: dict[str, Any] = json.loads(done.stdout)
    return view


def is_whole(bootstrap: str) -> bool:
    view = described(bootstrap)
    leads = [broker["leads"] for broker in view["brokers"] if broker["answers"]]
    return len(leads) == 3 and sum(leads) == view["partitions"] and view["offline"] == []


def test_cluster_survives_kills_and_a_restart(zookeeper_program: ZooKeeperProgram, tmp_path: Path) -> None:
    values = [f"record {number}".encode() for number in range(100)]
    with cluster_process(tmp_path, "--listen", "127.0.0.1:0", "--set", f"num.partitions={PARTITIONS}") as process:
        process.wait_ready()
        bootstrap = process.bootstrap
        assert len(set(bootstrap.split(","))) == 3
        with BlockingClient(bootstrap) as client:
            assert client.create_topic("orders").partitions == PARTITIONS
            client.produce("orders", values[:50])
        view = described(bootstrap)
        assert [broker["leads"] for broker in view["brokers"]] == [PARTITIONS // 3] * 3
        assert view["controller_id"] in (1, 2, 3)

        os.kill(process.pids[view["controller_id"]], signal.SIGKILL)
        killed = f"broker-{view['controller_id']}"
        process.wait_for_line(f"{killed} was killed by SIGKILL; its session is ended; it is started again\n")
        process.wait_for_line(f"{killed} is ready again\n")
        wait_until(lambda: is_whole(bootstrap), "all partitions to be led again")
        with BlockingClient(bootstrap) as client:
            client.produce("orders", values[50:])

        assert process.stop() == 0, process.log[-3000:]
        for number in (1, 2, 3):
            assert f"broker-{number} | " in process.log

    with cluster_process(tmp_path) as process:  # on the same directory: the same addresses, the same records
        process.wait_ready()
        assert process.bootstrap == bootstrap
        wait_until(lambda: is_whole(bootstrap), "all partitions to be led again")
        assert read_all(bootstrap) == sorted(values)
        assert process.stop() == 0, process.log[-3000:]


def read_all(bootstrap: str) -> list[bytes]:
    command = [*COMMAND, "consume", "orders", "--from", "beginning", "-b", bootstrap]
    done = subprocess.run(command, capture_output=True, env=ENVIRONMENT, check=True)
    return sorted(done.stdout.splitlines())


def test_crash_loop_of_one_broker_ends_the_cluster_with_the_reason(
    zookeeper_program: ZooKeeperProgram, tmp_path: Path
) -> None:
    directory = tmp_path / "data" / "broker-2" / "data"
    directory.mkdir(parents=True)
    lock = LocalFileSystem().lock(str(directory / ".lock"))
    try:
        with cluster_process(tmp_path, "--listen", "127.0.0.1:0") as process:
            assert process.wait_ended() == 1
    finally:
        lock.release()
    reason = process.log[process.log.rindex("barnabas: broker-2 ended") :]
    assert reason.startswith("barnabas: broker-2 ended with status 1, for the 5th time; ")
    assert f"{directory} is in use by another process" in reason
    assert "broker-1 | " in process.log
