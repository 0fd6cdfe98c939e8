"""The errors that have an owner (the table in docs/ARCHITECTURE.md): who raises which, and who handles it.

A peer's mistake is `barnabas.wire.errors.KafkaError`, because it carries a protocol error code.
"""


class BarnabasError(Exception):
    """Base of every error that Barnabas raises on purpose."""


class CorruptBatch(BarnabasError):  # noqa: N818 - a fact about bytes, named as one
    """Bytes that are not a valid record batch.

    From the network it becomes an error reply; on disk it is where recovery cuts the log.
    """


class InvalidRecords(CorruptBatch):
    """The batch's checksum is right, but its records are not what the header says, or lack what the topic needs.

    `indexes` names the records at fault within the batch, where single ones can be named (a missing key).
    """

    def __init__(self, message: str, indexes: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.indexes = indexes


class ExpandsTooFar(CorruptBatch):
    """The records are compressed and expand to more than any batch may: a bomb, until somebody shows otherwise."""


class DiskFailed(BarnabasError):  # noqa: N818
    """The operating system refused a file operation. The directory it happened in goes offline."""

    def __init__(self, operation: str, path: str, cause: OSError) -> None:
        super().__init__(f"cannot {operation} {path}: {cause.strerror or cause}")
        self.operation = operation
        self.path = path
        self.errno = cause.errno


class DiskFull(DiskFailed):
    """No space left (or over quota). Appends are refused and reads go on; it heals when space returns."""


class DirectoryLocked(BarnabasError):  # noqa: N818
    """Another process uses this log directory."""


class InvalidSetting(BarnabasError, ValueError):  # noqa: N818
    """A setting with an unknown name or a value out of range; the message says what is allowed."""
