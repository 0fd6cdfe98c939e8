"""What the rules of groups are set to: the broker's `group.*` and `offset*` settings, in milliseconds and counts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Defaults are Kafka's."""

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    group_size_max: int = 2**31 - 1
    metadata_bytes_max: int = 4_096
    """Of the text that a client commits with an offset; counted as Kafka counts it, in UTF-16 units."""
    offsets_retention_ms: int = 7 * 24 * 3_600 * 1_000
