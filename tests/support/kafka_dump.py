"""Apache Kafka's DumpLogSegments: running it over files, and finding what it has to complain about.

The tool knows a file by its suffix: `.log` and `.checkpoint` (record batches), `.index`, `.timeindex`,
`.txnindex` and `.snapshot` (producer state); any other file it says it ignores. An `.index` is checked
against the `.log` beside it, a `.timeindex` against both. It ends with status 0 whatever it finds, so its
output must be read.

Everything it can say about healthy files is listed here, and every other line is a complaint: a complaint
of a wording that nobody thought of is found too. Records are printed as text, so their keys, values and
headers must be free of line feeds for that to work.

One habit of the tool is excused: of every segment whose first record is not at offset 0, Kafka's own
included, it says that offsets are not consecutive because "-1 is followed by" the first one.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.kafka import java_command, run_command

DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"
DUMPED_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
ARGUMENT_CHARACTERS_MAX = 100_000
"""Linux takes no single argument of more than 128 KiB, and the tool wants all its files in one."""

_HEALTHY_LINES = tuple(
    re.compile(pattern)
    for pattern in (
        r"",
        r"Dumping .+",
        r"Log starting offset: \d+",
        r"KRaft bootstrap snapshot",
        r"Snapshot end offset: \d+, epoch: \d+",
        r"baseOffset: \d+ lastOffset: \d+ count: \d+ .* magic: 2 compresscodec: \w+ crc: \d+ isvalid: true",
        r"\| offset: \d+ (CreateTime|LogAppendTime): -?\d+ keySize: -?\d+ valueSize: -?\d+ "
        r"sequence: -?\d+ headerKeys: \[.*",
        r"offset: \d+ position: \d+",
        r"timestamp: -?\d+ offset: \d+",
        r".+ is empty\.",
        r".+ passed sanity check\.",
        r"version: 0 producerId: \d+ firstOffset: \d+ lastOffset: \d+ lastStableOffset: \d+",
        r"producerId: \d+ producerEpoch: \d+ coordinatorEpoch: -?\d+ "
        r"currentTxnFirstOffset: (OptionalLong\.empty|OptionalLong\[\d+\]) lastTimestamp: -?\d+"
        r"( ?firstSequence: -?\d+ lastSequence: -?\d+ lastOffset: -?\d+ offsetDelta: \d+ timestamp: -?\d+)?",
    )
)
_HEADING = re.compile(r"Non-consecutive offsets in .+|Found timestamp mismatch in :.+")
"""Says nothing by itself: at least one detail follows."""
_DETAIL = re.compile(r"  -?\d+ is followed by -?\d+|  Index timestamp: -?\d+, log timestamp: -?\d+")
_EXCUSED = (re.compile(r"  -1 is followed by \d+"),)
_EXCUSED_IN_COMPACTED = (
    re.compile(r"  -?\d+ is followed by \d+"),
    re.compile(r"  Index timestamp: \d+, log timestamp: -1"),
)


def dumpable_files(directory: Path) -> list[Path]:
    """Every file below a directory that DumpLogSegments knows how to read, in order."""
    return sorted(path for path in directory.rglob("*") if path.is_file() and path.suffix in DUMPED_SUFFIXES)


def dump_log_segments(files: Iterable[Path], *flags: str) -> str:
    """What DumpLogSegments prints about the files; by default with every record and its data.

    Many files share a JVM. An end with a bad status is told in the output's last line.
    """
    outputs = []
    for group in _argument_groups(files):
        options = flags or ("--deep-iteration", "--print-data-log")
        status, output = run_command(java_command(DUMP_LOG_SEGMENTS, *options, "--files", group))
        outputs.append(output)
        if status != 0:
            outputs.append(f"\nexit status {status}\n")
    return "".join(outputs)


def _argument_groups(files: Iterable[Path]) -> Iterator[str]:
    group = ""
    for path in files:
        if len(group) + len(str(path)) >= ARGUMENT_CHARACTERS_MAX:
            yield group
            group = ""
        group = f"{group},{path}" if group else str(path)
    if group:
        yield group


def dump_complaints(output: str, *, compacted: bool = False) -> list[str]:
    """Every line of DumpLogSegments's output that a healthy file would not have caused.

    `compacted` excuses what compaction causes in Kafka's own files: gaps between offsets, and time index
    entries for batches that have lost their last record.
    """
    excused = _EXCUSED_IN_COMPACTED if compacted else _EXCUSED
    complaints = []
    heading = ""
    for line in output.split("\n"):
        if _HEADING.fullmatch(line):
            heading = f"{line}: "
        elif _DETAIL.fullmatch(line):
            if not any(pattern.fullmatch(line) for pattern in excused):
                complaints.append(heading + line.strip())
        elif not any(pattern.fullmatch(line) for pattern in _HEALTHY_LINES):
            complaints.append(line)
    return complaints
