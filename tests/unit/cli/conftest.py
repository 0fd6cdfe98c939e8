"""What the tests of the commands share."""

import sys
from pathlib import Path

import pytest

from tests.support.sample_log import make_sample


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_sample(tmp_path)


@pytest.fixture(autouse=True)
def _keep_excepthook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
