"""The key of a broker's session in its log directory."""

import os
import stat
from pathlib import Path
from random import Random

import pytest

from barnabas.base.filesystem import LocalFileSystem
from barnabas.broker.session_file import SESSION_FILE, read_session_file, remove_session_file, write_session_file
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey
from barnabas.sim.disk import SimulatedDisk

KEY = SessionKey(0x1000_0000_0000_0007, bytes(range(16)))


def test_key_is_read_back_and_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    files, path = LocalFileSystem(), str(tmp_path / SESSION_FILE)
    (tmp_path / f"{SESSION_FILE}.tmp").write_text("left behind, and open to everybody")
    assert read_session_file(files, path) is None

    write_session_file(files, path, SessionKey(1, b"old"))
    write_session_file(files, path, KEY)

    assert read_session_file(files, path) == KEY
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(tmp_path) == [SESSION_FILE]
    remove_session_file(files, path)
    assert read_session_file(files, path) is None


def test_key_on_a_simulated_disk() -> None:
    disk = SimulatedDisk(Random(0))
    write_session_file(disk, f"/{SESSION_FILE}", KEY)

    assert read_session_file(disk, f"/{SESSION_FILE}") == KEY


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", b'{"session_id": 1, "password": "x"}', b"\xff", b'{"session_id"']
)
def test_damaged_file_is_said_and_not_used(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / SESSION_FILE
    path.write_bytes(content)

    assert read_session_file(LocalFileSystem(), str(path)) is None
    assert "is damaged" in caplog.text
