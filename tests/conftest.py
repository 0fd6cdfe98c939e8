"""What every test shares."""

import signal

import pytest
from hypothesis import settings

# A slow machine must not fail a property test.
settings.register_profile("barnabas", deadline=None)
settings.load_profile("barnabas")


def pytest_configure(config: pytest.Config) -> None:
    # Warnings are errors here, but this one is kafka-python's own, raised while it is imported.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As it is in a job that a shell has put into the background: processes that a test starts would inherit it, and
    # never hear that they are interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
