"""Network counters: plain numbers that only grow (except `connections_open`), read for the metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class NetworkCounters:
    """`bytes_out` counts what was handed to the operating system or to TLS, file ranges included."""

    bytes_in: int = 0
    bytes_out: int = 0
    requests_in: int = 0
    connections_open: int = 0
    connections_accepted: int = 0
    connections_refused: int = 0
    connections_closed_idle: int = 0
    ranges_loaded: int = 0
    """File ranges that were not in the page cache and were read ahead in a thread."""
