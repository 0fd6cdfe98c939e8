"""One client for each cluster and process, kept as long as the process lives.

Spark reuses its Python workers for task after task, and the process behind a streaming query calls one reader forever:
connections and cluster metadata should outlive a call. Nothing closes these clients; they end with the process, which
Spark kills. A process forked from one with clients creates its own.
"""

import os
from typing import Final

from barnabas.base.clock import SystemClock
from barnabas.client.blocking import BlockingClient
from barnabas.client.cluster import ClusterOptions
from barnabas.client.errors import ClusterUnreachable

_PAUSE_SECONDS: Final = 0.2

_CLIENTS: dict[tuple[int, str, ClusterOptions], BlockingClient] = {}


def shared_client(bootstrap: str, options: ClusterOptions, patience_seconds: float = 0.0) -> BlockingClient:
    """ClusterUnreachable when no broker answers: at once, or when one has been asked for so long."""
    key = (os.getpid(), bootstrap, options)
    client = _CLIENTS.get(key)
    if client is None:
        client = _open(bootstrap, options, patience_seconds)
        _CLIENTS[key] = client
    return client


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
