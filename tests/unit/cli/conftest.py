"""What the tests of the commands share."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sample_log import make_sample


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_sample(tmp_path)


@pytest.fixture(autouse=True)
def _restored_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a command changes for its whole process is put back."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
