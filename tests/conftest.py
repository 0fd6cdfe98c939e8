"""What every test shares."""

import os
import signal

import pytest
from hypothesis import settings

from tests.support.zookeeper_fixtures import zookeeper, zookeeper_program, zookeeper_server  # noqa: F401 - fixtures

# A slow machine must not fail a property test, and a run that turns red must be about the change that it tests: the
# usual run draws the same examples every time. `make explore` looks for new ones, ten times as many.
settings.register_profile("barnabas", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("BARNABAS_EXAMPLES", "barnabas"))


def pytest_configure(config: pytest.Config) -> None:
    # Warnings are errors here, but this one is kafka-python's own, raised while it is imported.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As it is in a job that a shell has put into the background: processes that a test starts would inherit it, and
    # never hear that they are interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
