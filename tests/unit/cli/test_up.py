"""`barnabas up` as a person meets it: in a process of its own where it serves, in this one where it refuses to."""

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import InvalidSetting
from barnabas.cli import main
from barnabas.cli.broker.given_settings import make_settings, with_metrics
from barnabas.cli.broker.serving import RecoveryProgress
from barnabas.client.blocking import BlockingClient
from barnabas.net.stream import ListenAddress
from barnabas.storage.directories.opening import OpeningProgress
from barnabas.testing import Broker
from tests.support.frame_client import frame_of, produce_of
from tests.unit.broker.test_settings import KAFKAS_OWN_FILE

STOP_SECONDS_MAX = 120


@contextmanager
def running(
    directory: Path, *arguments: str, program: tuple[str, ...] = ("-m", "barnabas.cli.main")
) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, *program, "up", "--data-dir", str(directory / "data"), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=directory, env={**os.environ}
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ready_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        assert process.stderr is not None
        pytest.fail(process.stderr.read())
    return line


def address_in(line: str) -> str:
    found = re.search(r"127\.0\.0\.1:\d+", line)
    assert found, line
    return found[0]


# Serving


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_says_when_it_is_ready_serves_and_stops_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, "--listen", "127.0.0.1:0", "--set", "num.partitions=3") as process:
        line = ready_line(process)
        bootstrap = address_in(line)
        assert "data in " in line
        with BlockingClient(bootstrap) as client:
            assert client.create_topic("orders").partitions == 3
            client.produce("orders", [b"a"])
            process.send_signal(number)
            printed, log = process.communicate(timeout=STOP_SECONDS_MAX)

    assert process.returncode == 0
    assert printed == "", "hints are for people"
    created, *stopped = [text.split(maxsplit=2)[2] for text in log.splitlines()]
    assert created == (
        "created topic 'orders' with 3 partitions  topic=orders partitions=3 principal=User:ANONYMOUS"
        " client_id=barnabas host=127.0.0.1"
    )
    assert stopped == ["stopping", "stopped"]
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")
def test_ipv6_address_is_said_as_commands_take_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path, "--listen", "[::1]:0") as process:
        found = re.search(r"ready on (\[::1\]:\d+);", ready_line(process))
        assert found
        assert main.run(["cluster", "describe", "--bootstrap", found[1]]) == 0
        assert f" {found[1]} " in capsys.readouterr().out


def test_up_on_a_terminal_says_what_to_try_next(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "barnabas.cli.main", "up", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, text=True) as process:
        os.close(theirs)
        try:
            seen = ""
            while "--from beginning" not in seen:
                seen += os.read(ours, 4096).decode()
        finally:
            process.terminate()
            process.communicate(timeout=STOP_SECONDS_MAX)
            os.close(ours)
    bootstrap = address_in(seen)
    assert "Ctrl-C stops it." in seen
    assert f"  barnabas topic create -b {bootstrap} orders" in seen.splitlines()


def test_up_logs_from_the_level_that_is_asked_for(tmp_path: Path) -> None:
    with running(tmp_path, "--listen", "127.0.0.1:0", "--log-level", "warning") as process:
        with BlockingClient(address_in(ready_line(process))) as client:
            client.create_topic("orders")
        process.terminate()
        _, log = process.communicate(timeout=STOP_SECONDS_MAX)
    assert log == ""


@pytest.mark.parametrize("option", [("--metrics-port", "0"), ("--metrics-listen", "127.0.0.1:0")])
def test_up_serves_metrics_and_health(tmp_path: Path, option: tuple[str, str]) -> None:
    with running(tmp_path, "--listen", "127.0.0.1:0", *option) as process:
        port = re.search(r"metrics on port (\d+)", ready_line(process))
        assert port
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/healthz") as health:
            assert json.load(health)["state"] == "ready"
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics") as metrics:
            assert b"barnabas_requests_received_total 0" in metrics.read()


def test_up_with_kafkas_own_configuration_file_starts_a_broker(tmp_path: Path) -> None:
    lines = [f"{name}={text}" for name, text in KAFKAS_OWN_FILE.items()]
    (tmp_path / "server.properties").write_text("\n".join(lines))
    with running(tmp_path, "--config", "server.properties", "--listen", "127.0.0.1:0") as process:
        with BlockingClient(address_in(ready_line(process))) as client:
            client.create_topic("orders")
            assert [topic.name for topic in client.topics()] == ["orders"]
        process.terminate()
        _, log = process.communicate(timeout=STOP_SECONDS_MAX)

    assert "server.properties: the listener CONTROLLER is ignored" in log
    assert "server.properties: advertised.listeners has no effect: --listen takes its place" in log
    assert process.returncode == 0


def test_up_with_json_log_says_everything_in_it(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("listeners=PLAINTEXT://127.0.0.1:0\nssl.key.password=x\nno.such=1\n")
    with running(tmp_path, "--log-format", "json", "--config", "server.properties") as process:
        assert process.stderr is not None
        notes = [json.loads(process.stderr.readline()) for _ in range(2)]
        ready = json.loads(process.stderr.readline())
        process.terminate()
        printed, _ = process.communicate(timeout=STOP_SECONDS_MAX)

    assert [note["level"] for note in notes] == ["WARNING", "WARNING"]
    assert "ssl.key.password has no effect" in notes[0]["message"]
    assert "no.such is not a setting" in notes[1]["message"]
    assert ready["bootstrap"].startswith("127.0.0.1:")
    assert printed == ""


_WITH_A_BUG = """
import asyncio
from barnabas.replication.tick import AppendTick
def stumble(tick):
    raise ZeroDivisionError("a test's")
AppendTick.write = stumble
from barnabas.cli.main import main
main()
"""


def test_up_ends_with_the_trace_in_the_log_and_one_clear_line_after_a_bug_of_its_own(tmp_path: Path) -> None:
    with running(tmp_path, "--listen", "127.0.0.1:0", program=("-c", _WITH_A_BUG)) as process:
        assert process.stdout is not None
        found = re.search(r"is ready on (\S+?);", process.stdout.readline())
        assert found is not None
        with BlockingClient(found[1]) as client:
            client.create_topic("orders")
        host, _, port = found[1].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=STOP_SECONDS_MAX) as producer:
            producer.sendall(frame_of(*produce_of("orders")))
            with suppress(ConnectionError):
                assert producer.recv(1) == b""
        _, log = process.communicate(timeout=STOP_SECONDS_MAX)

    assert process.returncode == 1
    assert log.count("Traceback") == 1
    assert log.splitlines()[-1] == (
        "barnabas: the broker stopped because of a bug: ZeroDivisionError: a test's (the log above has the "
        "trace; please report it)"
    )


# Refusing


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a refused start prints."""
    assert main.run(["up", *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return line


def test_taken_port_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = complaint(capsys, "--listen", address, "--data-dir", str(tmp_path / "data"))

    assert line == (
        f"barnabas: cannot listen on {address}: Address already in use; "
        "choose another port with --listen or --metrics-listen"
    )


def test_directory_of_a_running_broker_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(data_directory=tmp_path):
        line = complaint(capsys, "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))

    assert line.startswith(f"barnabas: {tmp_path} is in use by another process")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "num.partitions=none"], "num.partitions=none is not allowed; it must be a whole number"),
        (["--set", "num.partition=3"], "there is no broker setting num.partition"),
        (["--set", "num.partitions"], "--set wants NAME=VALUE"),
        (["--listen", "localhost"], "--listen localhost is not allowed; it must be HOST:PORT"),
        (["--listen", "localhost:65536"], "--listen localhost:65536 is not allowed"),
        (["--listen", "::1:9092"], "it must be HOST:PORT (put an IPv6 address in brackets, as in [::1]:9092)"),
        (["--config", "missing.properties"], "cannot read missing.properties: No such file or directory"),
        (["--data-dir", "/dev/null/data"], "cannot create /dev/null/data: Not a directory"),
        (["--log-format", "xml"], "'xml' is not one of 'text', 'json'"),
        (["--metrics-port", "70000"], "--metrics-port': 70000 is not in the range 0<=x<=65535"),
        (["--metrics-listen", "9404"], "--metrics-listen 9404 is not allowed; it must be HOST:PORT"),
        (["--metrics-listen", "host:65536"], "--metrics-listen host:65536 is not allowed; it must be HOST:PORT"),
        (["--metrics-listen", ":9404", "--metrics-port", "9404"], "give one of them"),
        (["--set", "metrics.listen=http://host:9404/"], "metrics.listen=http://host:9404/ is not allowed"),
        (["--brokers", "0"], "--brokers': 0 is not in the range 1<=x<=50"),
        (["--brokers", "3", "--metrics-listen", ":9404"], "with --brokers give --metrics-port, for the first"),
        (["--brokers", "3", "--set", "broker.id=1"], "--set broker.id is not allowed with --brokers"),
        (["--zookeeper", "localhost"], "--zookeeper needs --brokers; 'barnabas broker' runs one broker of a cluster"),
    ],
)
def test_mistake_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in complaint(capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_directory_of_a_cluster_is_refused_to_a_single_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2):
        (tmp_path / f"broker-{number}").mkdir()
        (tmp_path / f"broker-{number}" / "broker.properties").touch()

    line = complaint(capsys, "--data-dir", str(tmp_path))
    assert line.startswith(f"barnabas: {tmp_path} has the data of 2 brokers; give --brokers 2, or another directory")


def test_wrong_value_in_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.retention.hours=many\n")
    assert "log.retention.hours=many is not allowed" in complaint(capsys, "--config", str(file))
    file.write_text("broken=\\u12\n")
    assert complaint(capsys, "--config", str(file)).startswith(f"barnabas: {file}: line 1:")
    file.write_bytes(b"a=\xff\n")
    assert complaint(capsys, "--config", str(file)) == f"barnabas: cannot read {file}: it is not UTF-8 text"


# Settings


def test_later_sources_of_a_setting_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://10.0.0.1:1\nlog.dirs=/from-file\nnum.partitions=2\n")

    defaults = make_settings(None, None, {}, None)
    assert defaults.config.listeners[0].port == 9092
    assert list(defaults.log_manager_config.log_dirs) == [str(tmp_path / "barnabas-data")]
    of_file = make_settings(None, None, {"num.partitions": "3"}, file)
    assert (of_file.config.listeners[0].host, of_file.config.num_partitions) == ("10.0.0.1", 3)
    assert list(of_file.log_manager_config.log_dirs) == ["/from-file"]
    given = make_settings("[::1]:5", Path("here"), {"log.dirs": "/from-set"}, file)
    assert (given.config.listeners[0].host, given.config.listeners[0].port) == ("::1", 5)
    assert list(given.log_manager_config.log_dirs) == [str(tmp_path / "here")]


@pytest.mark.parametrize(
    ("listen", "metrics_listen", "metrics_port", "address"),
    [
        (None, None, None, ListenAddress("10.0.0.1", 1)),
        ("127.0.0.1:9092", None, 0, ListenAddress("127.0.0.1", 0)),
        ("[::1]:9092", None, 9404, ListenAddress("::1", 9404)),
        (None, "[::]:9404", None, ListenAddress("::", 9404)),
        (None, ":9404", None, ListenAddress("", 9404)),
        (None, "broker.example.org:9404", None, ListenAddress("broker.example.org", 9404)),
    ],
)
def test_address_of_the_metrics_comes_from_the_file_or_an_option(
    tmp_path: Path, listen: str | None, metrics_listen: str | None, metrics_port: int | None, address: ListenAddress
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("metrics.listen=10.0.0.1:1\n")
    settings = make_settings(listen, tmp_path, {}, file)

    assert with_metrics(settings, metrics_listen, metrics_port).config.metrics_listen == address


def test_setting_without_effect_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "server.properties"
    file.write_text("quota.window.num=3\n")

    make_settings(None, tmp_path, {}, file)

    assert [record.getMessage() for record in caplog.records] == [
        f"{file}: quota.window.num has no effect: Barnabas has no quotas"
    ]
    file.write_text("authorizer.class.name=some.Class\n")
    with pytest.raises(InvalidSetting, match="Barnabas has no access control"):
        make_settings(None, tmp_path, {}, file)
    with pytest.raises(InvalidSetting, match="there is no broker setting"):
        make_settings(None, tmp_path, {"quota.window.num": "3"}, None)


# What it says while it starts


def test_progress_is_said_only_when_it_takes_long(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    progress = RecoveryProgress(clock)

    for done in range(5):
        progress(OpeningProgress(done, 5, done << 20))
        clock.advance(600)

    assert [record.getMessage() for record in caplog.records] == [
        "opening the logs: 2 of 5 partitions, 2.0 MiB checked",
        "opening the logs: 4 of 5 partitions, 4.0 MiB checked",
    ]


def test_missing_kernel_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "barnabas.records._kernel", None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        main.run(["up", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--data-dir", str(tmp_path)])

    assert "several times slower" in caplog.text
    assert "(missing: barnabas.records._kernel)" in caplog.text
