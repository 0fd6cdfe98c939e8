"""The directory of a broker that was alone, for `barnabas up --brokers`: it becomes that of the cluster's first broker.

That cannot be undone, so a person is asked, and a script must say it (`--take-in`).
"""

import sys
from pathlib import Path
from typing import Final

from barnabas.base.filesystem import LocalFileSystem
from barnabas.broker.metadata_source import ZooKeeperSource
from barnabas.broker.taking_in import is_begun, is_single, require_takeable, take_in
from barnabas.cli.local_cluster.cluster_directory import ZOOKEEPER, log_directory_of
from barnabas.cli.local_cluster.replica_defaults import FILE as REPLICA_DEFAULTS
from barnabas.cli.output import confirm, remark
from barnabas.cli.remote import CommandFailed
from barnabas.metadata.errors import SessionLost
from barnabas.metadata.zookeeper.zookeeper_options import ZooKeeperOptions

_FIRST: Final = 1
"""The broker that it becomes."""


def will_take_in(directory: Path, *, is_told: bool) -> bool:
    """Whether there is a single broker's data to take in; `CommandFailed` when nobody wants that, or it cannot be."""
    files = LocalFileSystem()
    if not is_single(files, str(directory)):
        return False
    require_takeable(files, str(directory), _FIRST, str(log_directory_of(directory, _FIRST)))
    if is_told or is_begun(files, str(directory)):
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise CommandFailed(
            f"{directory} has the data of a single broker; --take-in makes it the first broker of the cluster, with "
            "its topics and records; else leave out --brokers, or choose another directory with --data-dir"
        )
    confirm(
        f"{directory} has the data of a single broker. Make it the first broker of the cluster, with its topics and "
        "records? It cannot run alone again.",
        "nothing was changed",
    )
    return True


def take_in_single(directory: Path, options: ZooKeeperOptions) -> None:
    """Once ZooKeeper runs."""
    target = log_directory_of(directory, _FIRST)
    try:
        take_in(
            LocalFileSystem(),
            str(directory),
            str(target),
            ZooKeeperSource(options).session,
            kept=[ZOOKEEPER, REPLICA_DEFAULTS],
        )
    except SessionLost as error:
        raise CommandFailed(f"{error}; run the same command again, and it goes on") from error
    remark(f"the single broker's data is that of broker {_FIRST} now, in {target}; its metadata is in ZooKeeper")
