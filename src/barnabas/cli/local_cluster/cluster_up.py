"""`barnabas up --brokers N`: a cluster on this machine, with a ZooKeeper server of its own unless another is named."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import barnabas
from barnabas.base.clock import SystemClock
from barnabas.base.filesystem import LocalFileSystem
from barnabas.broker.settings import BrokerSettings
from barnabas.cli.broker.retirement import retire_broker
from barnabas.cli.local_cluster.cluster_directory import ZOOKEEPER, LocalBroker, bootstrap_of
from barnabas.cli.local_cluster.cluster_screen import make_screen
from barnabas.cli.local_cluster.replica_defaults import ReplicaDefaults, begin, raising
from barnabas.cli.local_cluster.single_directory import take_in_single
from barnabas.cli.local_cluster.supervisor import Retire, Supervisor
from barnabas.cli.output import plural
from barnabas.cli.zookeeper.zookeeper_commands import started_servers
from barnabas.cli.zookeeper.zookeeper_jars import find_program
from barnabas.cli.zookeeper.zookeeper_node import ZooKeeperNode
from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers, broker_identity
from barnabas.metadata.zookeeper.zookeeper_options import ZooKeeperOptions

_RETIRE_TIMEOUT_MS: Final = 3000
"""A ZooKeeper that does not answer sooner must not hold up the restart."""


def run_cluster(
    directory: Path,
    brokers: Sequence[LocalBroker],
    texts: Mapping[str, str],
    options: Sequence[str],
    *,
    takes_in: bool = False,
) -> None:
    """Returns when a signal has stopped it; `CommandFailed` when it cannot be kept running.

    `texts` are the settings of all brokers, `options` what else their command lines have. With `takes_in` the directory
    is that of a single broker, which becomes the first one.
    """
    now = ReplicaDefaults.of(texts)
    before = begin(directory, now, takes_in=takes_in)
    with cluster_zookeeper(directory, texts) as (server, common):
        if takes_in:
            take_in_single(directory, _zookeeper_options(BrokerSettings(common)))
        for broker in brokers:
            broker.write_properties(common)
        where = bootstrap_of(brokers)
        count = plural(len(brokers), "broker")
        ready = f"Barnabas {barnabas.__version__} ({count}) is ready on {where}; data in {directory}"
        with make_screen() as screen:
            retire = _retiring(BrokerSettings(common))
            when_ready = raising(directory, where, len(brokers), before, now)
            supervisor = Supervisor(
                brokers, options, retire, screen, SystemClock(), ready, server=server, when_ready=when_ready
            )
            asyncio.run(supervisor.run())


@contextmanager
def cluster_zookeeper(
    directory: Path, texts: Mapping[str, str]
) -> Iterator[tuple[ZooKeeperNode | None, Mapping[str, str]]]:
    """The server that the cluster brings along, if the settings name none; and the settings, which then name it."""
    if texts.get("zookeeper.connect"):
        yield None, texts
        return
    servers = ZooKeeperServers(find_program(), directory / ZOOKEEPER)
    with started_servers(servers):
        identity = broker_identity(servers.directory).read_text().strip()
        reached = {"zookeeper.connect": servers.connect, "zookeeper.digest.identity": identity}
        yield servers.nodes[0], {**texts, **reached, "zookeeper.set.acl": "true"}


def _zookeeper_options(settings: BrokerSettings) -> ZooKeeperOptions:
    options = settings.config.zookeeper_options()
    assert options is not None, "the settings name a ZooKeeper"
    return options


def _retiring(settings: BrokerSettings) -> Retire:
    hasty = replace(_zookeeper_options(settings), connection_timeout_ms=_RETIRE_TIMEOUT_MS)

    async def retire(broker: LocalBroker) -> bool:
        return await retire_broker(LocalFileSystem(), hasty, str(broker.log_directory))

    return retire
