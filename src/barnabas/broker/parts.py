"""What a broker stands on: everything that it does not make out of its settings.

A test or a simulation brings its own files, clock, randomness, network, threads. Each broker has a set of its own, and
many brokers may live on one event loop: nothing here is the loop's or the process's, above all not the loop's default
executor.
"""

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random

from barnabas.base.clock import Clock, SystemClock
from barnabas.base.filesystem import FileSystem, LocalFileSystem
from barnabas.base.machine import UNKNOWN_BOOT, boot_id
from barnabas.broker.authorizer import AllowAll, Authorizer
from barnabas.broker.metadata_source import MetadataSource
from barnabas.metadata.table import MemoryTable
from barnabas.net.sockets import SocketNetwork
from barnabas.net.stream import Network
from barnabas.storage.directories.descriptors import handles_capacity, raise_descriptor_limit
from barnabas.storage.segment.handles import Handles
from barnabas.storage.work import ThreadWorkers, Workers
from barnabas.wire.codecs import Codecs, default_codecs


def _system_handles() -> Handles:
    return Handles(handles_capacity(raise_descriptor_limit()))


def _make_threads(count: int) -> Executor:
    return ThreadPoolExecutor(count, thread_name_prefix="barnabas")


@dataclass(frozen=True, slots=True)
class BrokerParts:
    files: FileSystem
    clock: Clock
    random: Random
    network: Network = field(default_factory=SocketNetwork)
    handles: Handles = field(default_factory=_system_handles)
    """The open files of its logs."""
    log_workers: Workers = field(default_factory=ThreadWorkers)
    """What opens and closes the logs."""
    make_executor: Callable[[int], Executor] = _make_threads
    """Makes the broker's worker threads (`background.threads`), which it shuts down at its end."""
    codecs: Codecs = field(default_factory=default_codecs)
    """What reads the requests that come most."""
    authorizer: Authorizer = field(default_factory=AllowAll)
    metadata_table: MemoryTable | None = None
    """None: the metadata is a file in the first log directory, or in ZooKeeper (`zookeeper.connect`)."""
    metadata: MetadataSource | None = None
    """A metadata store that several brokers share, instead of these."""
    boot_id: str = UNKNOWN_BOOT
    """Of the machine that `files` are on."""


def system_parts() -> BrokerParts:
    """Those of the operating system."""
    return BrokerParts(LocalFileSystem(), SystemClock(), Random(), boot_id=boot_id())
