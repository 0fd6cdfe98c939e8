"""What a Python worker of Spark keeps from task to task: clients, idle producers, tables.

Spark reuses its Python workers for task after task, and the process behind a streaming query calls one reader forever:
connections, cluster metadata and tables should outlive a call, and only a module's variable does. So this is the one
module of `spark` and `pipelines` with state of its own; everything in it goes through `Kept`.

A process that was forked from one with kept values starts with none: their sockets and threads belong to the parent.
Nothing closes the clients; they end with the process, which Spark kills. Producers are closed when the process ends by
itself.
"""

import atexit
import os
from typing import Final, Generic, TypeVar

from barnabas.base.clock import SystemClock
from barnabas.client.blocking import BlockingClient
from barnabas.client.cluster import ClusterOptions
from barnabas.client.errors import ClusterUnreachable
from barnabas.client.producing.producer import Producer, ProducerOptions

_PAUSE_SECONDS: Final = 0.2
_DEFAULT_OPTIONS: Final = ClusterOptions()

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Kept(Generic[_Key, _Value]):
    """Values of this process by key."""

    def __init__(self) -> None:
        self._values: dict[_Key, _Value] = {}
        self._process_id = os.getpid()

    def get(self, key: _Key) -> _Value | None:
        return self._own().get(key)

    def put(self, key: _Key, value: _Value) -> None:
        self._own()[key] = value

    def take(self, key: _Key) -> _Value | None:
        """Removes the value, so that nobody else uses it meanwhile."""
        return self._own().pop(key, None)

    def take_all(self) -> list[tuple[_Key, _Value]]:
        values = list(self._own().items())
        self._values.clear()
        return values

    def _own(self) -> dict[_Key, _Value]:
        if self._process_id != os.getpid():
            self._values = {}
            self._process_id = os.getpid()
        return self._values


_Cluster = tuple[str, ClusterOptions]

_clients: Final = Kept[_Cluster, BlockingClient]()
_producers: Final = Kept[tuple[_Cluster, ProducerOptions], Producer]()


def shared_client(
    bootstrap: str, options: ClusterOptions = _DEFAULT_OPTIONS, patience_seconds: float = 0.0
) -> BlockingClient:
    """The client of this process for a cluster, never closed.

    ClusterUnreachable when no broker answers for `patience_seconds`.
    """
    client = _clients.get((bootstrap, options))
    if client is None:
        client = _open(bootstrap, options, patience_seconds)
        _clients.put((bootstrap, options), client)
    return client


def take_producer(bootstrap: str, cluster: ClusterOptions, options: ProducerOptions) -> Producer:
    """An idle producer of this process, or a new one. Keep it again after success; close it after a failure."""
    producer = _producers.take(((bootstrap, cluster), options))
    if producer is None:
        client = shared_client(bootstrap, cluster)
        producer = client.wait_for(_open_producer(client, options))
    return producer


def keep_producer(bootstrap: str, cluster: ClusterOptions, options: ProducerOptions, producer: Producer) -> None:
    _producers.put(((bootstrap, cluster), options), producer)


@atexit.register
def _close_producers() -> None:
    for (cluster, _), producer in _producers.take_all():
        shared_client(*cluster).wait_for(producer.close())


async def _open_producer(client: BlockingClient, options: ProducerOptions) -> Producer:
    return Producer(client.cluster, options)


def _open(bootstrap: str, options: ClusterOptions, patience_seconds: float) -> BlockingClient:
    clock = SystemClock()
    deadline = clock.monotonic() + patience_seconds
    while True:
        try:
            return BlockingClient(bootstrap, options).__enter__()
        except ClusterUnreachable:
            if clock.monotonic() >= deadline:
                raise
        clock.sleep(_PAUSE_SECONDS)
