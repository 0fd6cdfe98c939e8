"""`barnabas broker`: a broker by its configuration file, and the end of a dead one's session."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.base.filesystem import LocalFileSystem
from barnabas.broker.session_file import SESSION_FILE, read_session_file, write_session_file
from barnabas.client.blocking import BlockingClient
from barnabas.metadata.store import SessionState
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey, ZooKeeperOptions
from barnabas.metadata.zookeeper.zookeeper_store import ZooKeeperStore
from tests.support.command_line import run
from tests.support.store_scenario import reached
from tests.support.zookeeper import threads_gone

STOP_SECONDS_MAX = 120
FILES = LocalFileSystem()


def test_broker_alone_serves_with_the_settings_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'data'}\nnum.partitions=3\n")
    command = [sys.executable, "-m", "barnabas.cli.main", "broker", "--config", str(file), "--set", "broker.id=7"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert f"; data in {tmp_path / 'data'}" in line
            with BlockingClient(line.split(" is ready on ")[1].partition(";")[0]) as client:
                assert client.create_topic("orders").partitions == 3
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=STOP_SECONDS_MAX)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "node.id=7" in (tmp_path / "data" / "meta.properties").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "zookeeper.connect=a:b"], "no address of a ZooKeeper server"),
        (["--zookeeper", "a:b"], "no address of a ZooKeeper server"),
        (["--config", "missing.properties"], "cannot read missing.properties: No such file or directory"),
        (["retire", "--data-dir", "."], "not one of a cluster: give zookeeper.connect, in --config or by --zookeeper"),
    ],
)
def test_mistake_is_said_in_one_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, "broker", *arguments)

    assert (status, out) == (1, "")
    assert said in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# Retiring


def leave_session(options: ZooKeeperOptions) -> SessionKey:
    """What a broker that was killed leaves in ZooKeeper."""

    async def die() -> SessionKey:
        store = await ZooKeeperStore.open(options)
        await store.create("/e", ephemeral=True)
        store._client.abandon()
        await reached(store, SessionState.LOST)
        await threads_gone()
        return store.session_key

    return asyncio.run(die())


def is_there(options: ZooKeeperOptions) -> bool:
    async def look() -> bool:
        store = await ZooKeeperStore.open(options)
        found = await store.exists("/e")
        await store.close()
        await threads_gone()
        return found is not None

    return asyncio.run(look())


def test_session_of_a_dead_broker_is_ended_once(
    zookeeper: ZooKeeperOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / SESSION_FILE)
    write_session_file(FILES, path, leave_session(zookeeper))
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path}\nzookeeper.connect={zookeeper.hosts}{zookeeper.chroot}\n")
    assert is_there(zookeeper)

    assert run(capsys, "broker", "retire", "--config", str(file)) == (
        0,
        f"ended the session of the broker in {tmp_path}\n",
        "",
    )
    assert not is_there(zookeeper)
    assert read_session_file(FILES, path) is None
    connect = f"{zookeeper.hosts}{zookeeper.chroot}"
    assert run(capsys, "broker", "retire", "--data-dir", str(tmp_path), "--zookeeper", connect) == (
        0,
        f"the broker in {tmp_path} has no session\n",
        "",
    )


def test_running_broker_is_not_retired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_session_file(FILES, str(tmp_path / SESSION_FILE), SessionKey(1, b"secret"))
    lock = FILES.lock(str(tmp_path / ".lock"))
    try:
        status, _, err = run(capsys, "broker", "retire", "--data-dir", str(tmp_path), "--zookeeper", "127.0.0.1:1")
    finally:
        lock.release()

    assert status == 1
    assert f"{tmp_path} is in use by another process" in err
    assert (tmp_path / SESSION_FILE).exists()


def test_zookeeper_that_does_not_answer_leaves_the_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_session_file(FILES, str(tmp_path / SESSION_FILE), SessionKey(1, b"secret"))
    options = ["--set", "zookeeper.connection.timeout.ms=200", "--zookeeper", "127.0.0.1:1"]
    status, _, err = run(capsys, "broker", "retire", "--data-dir", str(tmp_path), *options)

    assert status == 1
    assert "cannot reach ZooKeeper: 127.0.0.1:1" in err
    assert sorted(os.listdir(tmp_path)) == [".lock", SESSION_FILE]
