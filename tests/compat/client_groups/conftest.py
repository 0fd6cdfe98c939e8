"""A broker of each kind for the tests of our client's groups."""

import itertools
from collections.abc import Iterator

import pytest

from tests.support.either_broker import EITHER, either_broker
from tests.support.group_readers import GROUP_SETTINGS

_numbers = itertools.count()


@pytest.fixture(scope="module", params=EITHER)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of each kind, one for all tests of a module: each has topics and groups of its own."""
    with either_broker(request, tmp_path_factory, GROUP_SETTINGS) as addresses:
        yield addresses


@pytest.fixture
def name() -> str:
    """Of a topic and a group that no other test uses."""
    return f"orders-{next(_numbers)}"
