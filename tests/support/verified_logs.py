"""Log directories that tests damage and verify: ways to change a file, and what `verify` says then."""

import struct
from collections.abc import Callable
from pathlib import Path

from barnabas.base.filesystem import LocalFileSystem
from barnabas.records.checksum import compute_crc
from barnabas.storage.tools.findings import Finding, Severity
from barnabas.storage.tools.verify import PartitionReport, verify_partition
from barnabas.storage.tools.verify_directory import DirectoryReport, find_target, verify_target


def check(directory: Path, *, is_settled: bool = True) -> DirectoryReport:
    files = LocalFileSystem()
    return verify_target(files, find_target(files, str(directory)), is_settled=is_settled)


def check_partition(data: Path, *, is_settled: bool = True) -> PartitionReport:
    return verify_partition(LocalFileSystem(), str(data / "orders-0"), is_settled=is_settled)


def errors(report: DirectoryReport | PartitionReport) -> list[Finding]:
    partitions = report.partitions if isinstance(report, DirectoryReport) else []
    findings = [*report.findings, *(finding for one in partitions for finding in one.findings)]
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def notes(report: PartitionReport) -> list[str]:
    return [finding.problem for finding in report.findings if finding.severity is Severity.NOTE]


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def patch_batch(path: Path, position: int, patch: Callable[[bytearray], None]) -> None:
    """Changes a batch and gives it the checksum that fits."""
    content = bytearray(path.read_bytes())
    (length,) = struct.unpack_from(">i", content, position + 8)
    batch = content[position : position + 12 + length]
    patch(batch)
    struct.pack_into(">I", batch, 17, compute_crc(batch))
    overwrite(path, position, batch)
