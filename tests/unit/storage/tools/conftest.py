"""A small sound log directory, for a test to damage."""

from pathlib import Path

import pytest

from tests.support.sample_log import make_sample


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_sample(tmp_path)
