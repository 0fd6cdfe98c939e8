"""`barnabas up --brokers`: real brokers with a real ZooKeeper, from the start through deaths to Ctrl-C."""

import asyncio
import fcntl
import os
import signal
import subprocess
from pathlib import Path

import pytest

from barnabas.base.errors import DirectoryLocked
from barnabas.base.filesystem import LocalFileSystem
from barnabas.cli.zookeeper.zookeeper_jars import ZooKeeperProgram
from barnabas.client.blocking import BlockingClient
from barnabas.metadata.zookeeper.zookeeper_options import ZooKeeperOptions
from barnabas.metadata.zookeeper.zookeeper_store import ZooKeeperStore
from tests.support.cluster_process import (
    COMMAND,
    ENVIRONMENT,
    STOP_SECONDS_MAX,
    cluster_process,
    described,
    is_whole,
)
from tests.support.kafka import wait_until

pytestmark = pytest.mark.slow

PARTITIONS = 12


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
        process.wait_for_line(f"{killed} was killed by SIGKILL")  # the command ends its session, or the others do
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


def test_brokers_and_zookeeper_stop_in_order_when_the_command_is_killed(
    zookeeper_program: ZooKeeperProgram, tmp_path: Path
) -> None:
    broker, server = tmp_path / "data" / "broker-1" / "data", tmp_path / "data" / "zookeeper" / "node-1"
    with cluster_process(tmp_path, "--listen", "127.0.0.1:0", brokers=1) as process:
        process.wait_ready()
        assert (is_broker_running(broker), is_server_running(server)) == (True, True)
        process.kill()
        wait_until(lambda: not is_broker_running(broker), "the end of the broker")
        wait_until(lambda: not is_server_running(server), "the end of ZooKeeper")
    assert (broker / ".kafka_cleanshutdown").exists()


def is_broker_running(directory: Path) -> bool:
    """By the lock that its process has."""
    try:
        LocalFileSystem().lock(str(directory / ".lock")).release()
    except DirectoryLocked:
        return True
    return False


def is_server_running(directory: Path) -> bool:
    """By the lock that ZooKeeper's process has inherited."""
    with open(directory / ".lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_servers_stop_when_the_command_that_runs_zookeeper_is_killed(
    zookeeper_program: ZooKeeperProgram, tmp_path: Path
) -> None:
    with open(tmp_path / "out", "wb") as out:
        command = [*COMMAND, "zookeeper", "up", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, env=ENVIRONMENT)
    try:
        wait_until(lambda: "is ready on" in (tmp_path / "out").read_text(), "ZooKeeper")
        assert is_server_running(tmp_path / "data" / "node-1")
    finally:
        process.kill()
        process.wait(STOP_SECONDS_MAX)
    wait_until(lambda: not is_server_running(tmp_path / "data" / "node-1"), "the end of the server")


def test_cluster_on_a_zookeeper_that_is_there(zookeeper: ZooKeeperOptions, tmp_path: Path) -> None:
    where = f"{zookeeper.hosts}{zookeeper.chroot}"
    with cluster_process(tmp_path, "--listen", "127.0.0.1:0", "--zookeeper", where, brokers=2) as process:
        process.wait_ready()
        assert asyncio.run(children(zookeeper, "/brokers/ids")) == ["1", "2"]
        wait_until(lambda: is_whole(process.bootstrap, 2), "both brokers")
        assert process.stop() == 0, process.log[-3000:]
    assert not (tmp_path / "data" / "zookeeper").exists()
    assert asyncio.run(children(zookeeper, "/brokers/ids")) == []


async def children(options: ZooKeeperOptions, path: str) -> list[str]:
    store = await ZooKeeperStore.open(options)
    try:
        return sorted(await store.children(path))
    finally:
        await store.close()


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
