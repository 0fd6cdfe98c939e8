"""`barnabas zookeeper up`: what it finds, what it refuses, and a server from its start to Ctrl-C."""

import asyncio
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.base.errors import DirectoryLocked
from barnabas.cli.ports import PortUnavailable
from barnabas.cli.zookeeper import zookeeper_commands, zookeeper_jars
from barnabas.cli.zookeeper.zookeeper_jars import ZooKeeperProgram, ZooKeeperUnavailable, find_jars
from barnabas.cli.zookeeper.zookeeper_servers import IDENTITY_FILE, ServerFailed, ZooKeeperServers
from barnabas.metadata.zookeeper.zookeeper_options import ZooKeeperOptions
from barnabas.metadata.zookeeper.zookeeper_store import ZooKeeperStore
from tests.support.command_line import run

STOP_SECONDS_MAX = 120
NEEDED = ("zookeeper-3.9.5", "zookeeper-jute-3.9.5", "slf4j-api-2.0.17", "metrics-core-4.2.37", "snappy-java-1.1.10.8")


def make_jars(directory: Path, *names: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / f"{name}.jar").touch()
    return directory


def make_program(directory: Path, script: str) -> ZooKeeperProgram:
    """A shell script where Java would be."""
    java = directory / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return ZooKeeperProgram(str(java), ())


# What it finds


def test_only_the_needed_jars_are_named(tmp_path: Path) -> None:
    others = ("zookeeper-recipes-3.9.5", "netty-all-4.2", "log4j-slf4j2-impl-2.25", "log4j-api-2.25", "log4j-core-2.25")
    found = find_jars([tmp_path / "missing", make_jars(tmp_path, *NEEDED, *others)])

    assert [path.stem for path in found] == [*NEEDED, *others[2:]]


def test_names_without_versions_are_found(tmp_path: Path) -> None:
    names = ("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java", "slf4j-simple")

    assert [path.stem for path in find_jars([make_jars(tmp_path, *names)])] == list(names)


def test_missing_jars_are_said(tmp_path: Path) -> None:
    with pytest.raises(ZooKeeperUnavailable, match=r"^there is no ZooKeeper on this machine: install it .*pyspark"):
        find_jars([tmp_path])
    make_jars(tmp_path, "zookeeper-3.4.14", "slf4j-api-1.7.25")
    with pytest.raises(ZooKeeperUnavailable, match=r"has one, but lacks zookeeper-jute, metrics-core, snappy-java"):
        find_jars([tmp_path])


def test_missing_java_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    status, out, err = run(capsys, "zookeeper", "up")
    assert (status, out) == (1, "")
    assert re.fullmatch(r"barnabas: ZooKeeper needs Java, but there is no `java` on the PATH: install one .*\n", err)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "JAVA_HOME is " in run(capsys, "zookeeper", "up")[2]


# What it refuses, and warns about


@pytest.mark.parametrize("listen", ["2181", "a:b", "::1", "a:70000"])
def test_bad_address_is_refused(listen: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "zookeeper", "up", "--listen", listen)

    assert status == 1
    assert f"--listen {listen} is not allowed; it must be HOST:PORT" in err


@pytest.mark.parametrize(
    ("nodes", "warnings"),
    [
        (1, []),
        (2, ["2 nodes survive no more failures than 1; an odd number is better"]),
        (9, ["more than 7 nodes only make writes slower, since a majority must confirm each"]),
    ],
)
def test_numbers_of_nodes_that_bring_nothing_are_warned_about(
    nodes: int, warnings: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find_nothing() -> ZooKeeperProgram:
        raise ZooKeeperUnavailable("nothing")

    monkeypatch.setattr(zookeeper_jars, "find_program", find_nothing)
    status, _, err = run(capsys, "zookeeper", "up", "--nodes", str(nodes))

    assert status == 1
    assert err.splitlines() == [*warnings, "barnabas: nothing"]


def test_port_that_is_taken_is_said_before_anything_starts(tmp_path: Path) -> None:
    program = make_program(tmp_path, "exit 1")
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(PortUnavailable, match=r"cannot listen on 127.0.0.1:\d+: Address already in use; .*--listen"),
    ):
        ZooKeeperServers(program, tmp_path / "data", port=taken.getsockname()[1])
    with pytest.raises(PortUnavailable, match="there is no port 65536"):
        ZooKeeperServers(program, tmp_path / "data", 3, port=65_535)


def test_other_number_of_nodes_than_the_data_has_is_refused(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"node-{number}").mkdir()
    with pytest.raises(ServerFailed, match="has the data of 3 nodes, not of 1; give --nodes 3, or another directory"):
        ZooKeeperServers(make_program(tmp_path, "exit 1"), tmp_path, 1)


def test_directory_of_a_running_server_is_refused(tmp_path: Path) -> None:
    program = make_program(tmp_path, "exec sleep 60")
    running, second = (ZooKeeperServers(program, tmp_path / "data").nodes[0] for _ in range(2))
    running.start()
    try:
        with pytest.raises(DirectoryLocked, match=r"node-1 is in use by another ZooKeeper server; stop that process"):
            second.start()
    finally:
        running.kill()
    second.start()
    second.kill()


def test_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    script = "echo 'WARN nothing'; echo 'java.net.BindException: Address already in use'; echo '  at x'; exit 1"
    servers = ZooKeeperServers(make_program(tmp_path, script), tmp_path / "data")
    with pytest.raises(ServerFailed, match=r"did not start: java.net.BindException: Address already in use .*log is"):
        servers.start()


def test_command_ends_with_its_last_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    servers = ZooKeeperServers(make_program(tmp_path, "echo out of memory; exit 1"), tmp_path / "data", 2)
    for node in servers.nodes:
        node.start()
    with pytest.raises(zookeeper_commands.CommandFailed, match="no server runs any more"):
        zookeeper_commands._watch(servers)
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(" (")[0] for line in said] == [f"node {n} has ended: out of memory" for n in (1, 2)]


def test_configuration_names_every_node_and_survives_any_path(tmp_path: Path) -> None:
    directory = tmp_path / "zoo é\\😀"
    servers = ZooKeeperServers(make_program(tmp_path, "sleep 60"), directory, 3)
    for node in servers.nodes:
        node.start()
    servers.stop()
    text = (directory / "node-2" / "zoo.cfg").read_text(encoding="ascii")
    assert r"/zoo \u00e9\\\ud83d\ude00/node-2/data" in text
    for node in servers.nodes:
        assert (
            f"server.{node.address.number}=127.0.0.1:{node.address.quorum_port}:{node.address.election_port}\n" in text
        )
    assert (directory / "node-2" / "data" / "myid").read_text() == "2\n"
    assert len({port for one in servers.nodes for port in (one.address.client_port, one.address.quorum_port)}) == 6


# A server


def test_server_is_ready_when_it_says_so_and_stops_with_ctrl_c(
    zookeeper_program: ZooKeeperProgram, tmp_path: Path
) -> None:
    async def use(connect: str, identity: str) -> None:
        options = ZooKeeperOptions(connect, "/kafka", identity=identity, has_access_lists=True)
        store = await ZooKeeperStore.open(options)
        await store.create("/config", b"x")
        assert (await store.get("/config")).data == b"x"
        await store.close()

    data = tmp_path / "data"
    command = [sys.executable, "-m", "barnabas.cli.main", "zookeeper", "up"]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--data-dir", str(data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            ready = re.fullmatch(rf"ZooKeeper [\d.]+ is ready on (127\.0\.0\.1:\d+); data in {data}\n", line)
            assert ready, line
            identity = data / IDENTITY_FILE
            assert stat.S_IMODE(os.stat(identity).st_mode) == 0o600
            assert stat.S_IMODE(os.stat(data).st_mode) == 0o700
            asyncio.run(use(ready[1], identity.read_text().strip()))
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=STOP_SECONDS_MAX) == ("", "")
        finally:
            process.terminate()
    assert process.returncode == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(ready[1].rpartition(":")[2])))
