"""A small sound log directory, and another process that holds its lock."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HOLD_LOCK = """
import sys
from barnabas.base.filesystem import LocalFileSystem
lock = LocalFileSystem().lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def broker(data: Path) -> Iterator[None]:
    """Another process that uses the directory."""
    command = [sys.executable, "-c", HOLD_LOCK, str(data / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.communicate()
