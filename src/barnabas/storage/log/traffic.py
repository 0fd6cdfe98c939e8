"""What went into a topic and came out of it, counted where it happens.

Plain numbers that only grow, read when the metrics are asked for. The logs of a topic's partitions share one, so that
the topic's numbers stay when a partition is not served here any more. Owner: the thread that owns the logs.
"""


class TopicTraffic:
    __slots__ = ("appended_bytes", "appended_records", "sent_bytes")

    def __init__(self) -> None:
        self.appended_bytes = 0
        """As stored; what was refused, and a retry that the log has already, does not count."""
        self.appended_records = 0
        self.sent_bytes = 0
        """In answers to fetches."""
