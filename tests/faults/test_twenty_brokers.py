"""Twenty broker processes form a cluster on a real ZooKeeper, share a topic, and are restarted one after the other.

It takes minutes and a gigabyte, so that only `BARNABAS_LONG_TESTS=1` runs it. `-rP` shows what it measured.
"""

import os
import time
from pathlib import Path

import pytest

from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers
from tests.support.acked_records import Writing, check_records
from tests.support.cluster_processes import ClusterProcesses

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("BARNABAS_LONG_TESTS" not in os.environ, reason="set BARNABAS_LONG_TESTS=1 to run it"),
]

BROKERS = 20
PARTITIONS = 60
RESTARTED = 3


def own_megabytes(pid: int) -> float:
    """The memory that no other process has a part in."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def test_twenty_brokers_form_a_cluster_and_are_restarted(zookeeper_server: ZooKeeperServers, tmp_path: Path) -> None:
    began = time.monotonic()
    with ClusterProcesses(tmp_path, f"{zookeeper_server.connect}/twenty", BROKERS) as cluster:
        cluster.agreed(BROKERS)
        print(f"{BROKERS} brokers agree after {time.monotonic() - began:.1f} s")

        cluster.create_topic("orders", PARTITIONS)
        view = cluster.agreed(BROKERS)
        assert [len(view.led_by(broker, "orders")) for broker in cluster] == [PARTITIONS // BROKERS] * BROKERS
        memory = [own_megabytes(broker.pid) for broker in cluster]
        print(f"each broker has {min(memory):.0f} to {max(memory):.0f} MB of its own, all {sum(memory):.0f} MB")

        with Writing(cluster.bootstrap, "orders", PARTITIONS) as writing:
            writing.wait_for_more()
            for _ in range(RESTARTED):  # the controller each time
                began = time.monotonic()
                restarted = cluster.controller
                restarted.stop()
                assert cluster.agreed(BROKERS - 1).hosted_by(restarted, "orders") != []
                restarted.start()
                assert cluster.agreed(BROKERS).controller_id != restarted.id
                print(f"the controller is restarted, and all agree, after {time.monotonic() - began:.1f} s")
            writing.wait_for_more()
        check_records(cluster.bootstrap, "orders", writing.acked)
