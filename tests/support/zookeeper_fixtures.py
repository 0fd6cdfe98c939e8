"""A real ZooKeeper for tests: one server for the whole run, and a chroot of its own for each test.

They skip with a reason where there is no Java or no ZooKeeper. Imports are inside: tests/conftest.py has these fixtures
for all tests, and most need none of it.
"""

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.cli.zookeeper.zookeeper_jars import ZooKeeperProgram
    from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers
    from barnabas.metadata.zookeeper.zookeeper_options import ZooKeeperOptions

_chroot_numbers = count()


@pytest.fixture(scope="session")
def zookeeper_program() -> "ZooKeeperProgram":
    from barnabas.cli.zookeeper.zookeeper_jars import ZooKeeperUnavailable, find_program

    try:
        return find_program()
    except ZooKeeperUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def zookeeper_server(
    zookeeper_program: "ZooKeeperProgram", tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[ZooKeeperServers]":
    from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers

    with ZooKeeperServers(zookeeper_program, tmp_path_factory.mktemp("zookeeper")) as servers:
        yield servers


@pytest.fixture
def zookeeper(zookeeper_server: "ZooKeeperServers") -> "ZooKeeperOptions":
    """How to reach the server, with a chroot that does not exist yet."""
    from barnabas.metadata.zookeeper.zookeeper_options import ZooKeeperOptions

    return ZooKeeperOptions(zookeeper_server.connect, f"/test-{next(_chroot_numbers)}", session_timeout_ms=10_000)
