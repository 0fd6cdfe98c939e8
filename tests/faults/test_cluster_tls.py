"""A broker process whose ZooKeeper is reached over TLS: its start, its restart, and the end of its session."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers
from barnabas.testing.loop_thread import LoopThread
from tests.support.acked_records import Writing, check_records
from tests.support.cluster_processes import ClusterProcesses
from tests.support.cuttable_proxy import CuttableProxy
from tests.unit.metadata.test_zookeeper_store import certificate

__all__ = ["certificate"]

pytestmark = pytest.mark.slow

PARTITIONS = 4


@contextmanager
def tls_proxy(target: str, certificate: tuple[str, str]) -> Iterator[CuttableProxy]:
    """What is sent to it in TLS goes to the target without."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    host, _, port = target.partition(":")
    home = LoopThread()

    async def open_proxy() -> CuttableProxy:
        return await CuttableProxy(host, int(port), context).__aenter__()

    try:
        proxy = home.run(open_proxy())
        try:
            yield proxy
        finally:
            home.run(proxy.__aexit__(None, None, None))
    finally:
        home.end()


def test_broker_whose_zookeeper_speaks_tls(
    zookeeper_server: ZooKeeperServers, certificate: tuple[str, str], tmp_path: Path
) -> None:
    settings = {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": certificate[0]}
    with (
        tls_proxy(zookeeper_server.connect, certificate) as proxy,
        ClusterProcesses(tmp_path, f"localhost:{proxy.port}/tls", 1, settings) as cluster,
    ):
        [broker] = cluster
        cluster.create_topic("orders", PARTITIONS)
        with Writing(cluster.bootstrap, "orders", PARTITIONS) as writing:
            writing.wait_for_more()
            broker.kill()
            assert broker.retire().stdout == f"ended the session of the broker in {broker.data_directory}\n"
            broker.start()
            cluster.create_topic("more")
            writing.wait_for_more()
        assert cluster.agreed(1).offline == []
        check_records(cluster.bootstrap, "orders", writing.acked)
