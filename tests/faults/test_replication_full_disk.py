"""A follower whose disk is full, on a real small disk: it leaves, and comes back when there is room."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers
from tests.support.cluster_processes import ClusterProcesses
from tests.support.replicated_load import REPLICAS, REPLICATED, loaded
from tests.support.small_disk import fill, small_disk

pytestmark = pytest.mark.slow

DISK_BYTES = 24 << 20
SETTINGS = {
    **REPLICATED,
    "replica.lag.time.max.ms": "3000",
    "log.segment.bytes": "1048576",
    "log.index.size.max.bytes": "65536",
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Where the first broker has its data."""
    with small_disk(tmp_path / "broker-1" / "data", DISK_BYTES) as mounted:
        yield mounted


def test_follower_with_a_full_disk_leaves_and_comes_back_when_there_is_room(
    zookeeper_server: ZooKeeperServers, tmp_path: Path, disk: Path
) -> None:
    with ClusterProcesses(tmp_path, f"{zookeeper_server.connect}/full-disk", REPLICAS, SETTINGS) as cluster:
        full = cluster[1]
        with loaded(cluster, "orders") as load:
            full.stop()  # the others lead all that it led, and go on when it is back
            load.bring_back()
            ballast = disk / "ballast"
            fill(ballast)

            load.wait_until_left(full)

            load.wait_for_more()
            assert full.is_running
            ballast.unlink()
            load.bring_back()
