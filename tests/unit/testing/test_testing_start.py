"""A test's broker that cannot start says why, and leaves nothing behind."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError, DirectoryLocked, InvalidSetting
from barnabas.net.errors import ListenFailed
from barnabas.testing import Broker

INTERRUPTED = """
import os, signal, threading
from barnabas.broker import app
from barnabas.testing import Broker

recover = app.Broker.__aenter__

async def start_slowly(self):
    os.kill(os.getpid(), signal.SIGINT)
    return await recover(self)

app.Broker.__aenter__ = start_slowly
try:
    Broker().start()
except KeyboardInterrupt:
    print("interrupted", [thread.name for thread in threading.enumerate()])
"""


@pytest.fixture(autouse=True)
def temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are made, and whether any is left can be seen."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def _open_files() -> list[str]:
    """With sockets."""
    files = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one by which they are listed
            files.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return sorted(files)


def _fail_to_start(broker: Broker, expected: type[Exception], said: str) -> None:
    threads = set(threading.enumerate())
    for attempt in range(2):
        with pytest.raises(expected, match=said):
            broker.start()
        assert not broker.is_running
        if attempt == 0:
            open_files = _open_files()  # the first loop of a process opens a pipe that all later ones share
    assert _open_files() == open_files
    assert set(threading.enumerate()) == threads


def test_bad_setting_leaves_nothing(temporary_directory: Path) -> None:
    _fail_to_start(Broker({"num.partitions": "none"}), InvalidSetting, r"num\.partitions=none")
    assert list(temporary_directory.iterdir()) == []


def test_taken_port_leaves_nothing(temporary_directory: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"}
        _fail_to_start(Broker(listeners), ListenFailed, "Address already in use")
        _fail_to_start(Broker(listeners, data_directory=tmp_path / "new"), ListenFailed, "Address already in use")
    assert list(temporary_directory.iterdir()) == []
    assert not (tmp_path / "new").exists()


def test_file_in_place_of_the_directory_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    _fail_to_start(Broker(data_directory=tmp_path / "file"), BarnabasError, "File exists")
    assert (tmp_path / "file").read_text() == "not a directory"


def test_directory_that_another_broker_uses_stays_as_it_is(tmp_path: Path) -> None:
    with Broker(data_directory=tmp_path / "data") as other:
        other.append("orders", [b"a"], create=True)
        before = sorted((tmp_path / "data").rglob("*"))
        _fail_to_start(Broker(data_directory=tmp_path / "data"), DirectoryLocked, "in use by another process")
        assert sorted((tmp_path / "data").rglob("*")) == before
        assert len(other.records("orders")) == 1


def test_failed_start_of_a_stopped_broker_keeps_its_data() -> None:
    with Broker() as broker:
        broker.append("orders", [b"a"], create=True)
        broker.stop()
        port = int(broker.bootstrap.rpartition(":")[2])
        with socket.create_server(("127.0.0.1", port)), pytest.raises(ListenFailed):
            broker.start()
        broker.start()
        assert [record.value for record in broker.records("orders")] == [b"a"]


def test_interrupted_start_ends_the_broker(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert ended.stdout == "interrupted ['MainThread']\n", ended.stderr
    assert list((tmp_path / "temporary").iterdir()) == []
