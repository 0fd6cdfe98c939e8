"""`barnabas log`: looks at the files of a log, checks them, repairs them.

`dump` and `verify` only read, also what a broker is using; `repair` takes the directory's lock. Storage and records are
imported by the commands, so that help and completion stay quick.
"""

import fcntl
import os
import random
import struct
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.base.clock import SystemClock
from barnabas.base.errors import BarnabasError, DirectoryLocked
from barnabas.base.filesystem import FileSystem, LocalFileSystem, Lock, disk_error

if TYPE_CHECKING:
    from barnabas.cli.log.dump import DumpOptions
    from barnabas.storage.tools.overlay import Change
    from barnabas.storage.tools.repair import RepairReport
    from barnabas.storage.tools.verify import PartitionReport
    from barnabas.storage.tools.verify_directory import DirectoryReport, Target

app = typer.Typer(help="Inspect, check and repair log files.", rich_markup_mode=None)

_TABLE_ROWS_MAX = 30
_FLOCK = struct.Struct("hhqqi4x")
"""The kernel's description of a lock: type, whence, start, length, holder."""

Directory = Annotated[
    str,
    typer.Argument(metavar="DIR", help="A partition's directory, or a log directory with several.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def dump(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="Logs, indexes, snapshots, checkpoints, meta.properties.", show_default=False
        ),
    ],
    records: Annotated[bool, typer.Option("--records", help="Also print the records of each batch.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    first_offset: Annotated[int, typer.Option("--from", metavar="OFFSET", help="Start at this offset.", min=0)] = 0,
    limit: Annotated[
        int | None,
        typer.Option("-n", metavar="COUNT", help="Stop after this many lines (records, with --records).", min=1),
    ] = None,
) -> None:
    """Print the contents of a log file.

    A damaged file is printed up to the damage; then its position is reported, and the exit status is 1.
    """
    from barnabas.cli.log.dump import DumpOptions
    from barnabas.cli.output import complain

    options = DumpOptions(with_records=records, first_offset=first_offset)
    is_damaged = False
    for path in paths:
        if len(paths) > 1 and not as_json:
            sys.stdout.write(f"{path}:\n")
        try:
            _dump_one(path, options, as_json, limit)
        except BarnabasError as error:
            complain(str(error))
            is_damaged = True
    if is_damaged:
        raise typer.Exit(1)


def _dump_one(path: str, options: "DumpOptions", as_json: bool, limit: int | None) -> None:
    from barnabas.cli.log.dump import dump_file
    from barnabas.cli.log.dump_text import json_of, text_of

    write = sys.stdout.write
    render = json_of if as_json else text_of
    is_counted = (lambda line: line["type"] == "record") if options.with_records else (lambda line: True)
    for line in dump_file(LocalFileSystem(), path, options):
        write(render(line) + "\n")
        if limit is not None and is_counted(line):
            limit -= 1
            if not limit:
                return


@app.command()
def verify(directory: Directory, as_json: AsJson = False) -> None:
    """Check everything that must be true of a log, without changing it.

    Shows the exact position of each error, with exit status 1 if there are any. Notes are not errors: they say what a
    crash has left behind, or what was not checked. Can be used on a directory that a broker is using.
    """
    from barnabas.cli.output import progress, remark
    from barnabas.storage.tools.verify_directory import find_target, target_log_bytes, verify_target, was_closed

    files = LocalFileSystem()
    target = find_target(files, directory)
    is_used = _is_in_use(target)
    if is_used:
        remark(
            f"{target.log_directory} is in use: records written during the check may be missed, or seen only in part"
        )
    with progress("checking", target_log_bytes(files, target)) as advance:
        report = verify_target(files, target, is_settled=was_closed(files, target) and not is_used, on_progress=advance)
    if as_json:
        _say_verified_json(report, is_used)
    else:
        _say_verified(report)
    if not report.is_sound:
        raise typer.Exit(1)


def _say_verified_json(report: "DirectoryReport", is_used: bool) -> None:
    from barnabas.cli.output import finding_fields, say_json

    say_json(
        {
            "directory": report.directory,
            "in_use": is_used,
            "sound": report.is_sound,
            "findings": [finding_fields(finding) for finding in report.findings],
            "partitions": [
                {
                    "name": partition.name,
                    "sound": partition.is_sound,
                    "segments": partition.segments,
                    "batches": partition.batches,
                    "records": partition.records,
                    "log_bytes": partition.log_bytes,
                    "start_offset": partition.start_offset,
                    "end_offset": partition.end_offset,
                    "errors": partition.errors,
                    "findings": [finding_fields(finding) for finding in partition.findings],
                }
                for partition in report.partitions
            ],
        }
    )


def _say_verified(report: "DirectoryReport") -> None:
    from barnabas.cli.output import human_bytes, plural, say, say_findings, say_table

    findings = [*report.findings, *(finding for one in report.partitions for finding in one.findings)]
    say_findings(findings)
    shown = report.partitions
    if len(shown) > _TABLE_ROWS_MAX:
        with_findings = [partition for partition in shown if partition.findings]
        shown = sorted(with_findings, key=lambda partition: partition.is_sound)[:_TABLE_ROWS_MAX]
    if shown:
        say_table(
            ("partition", "segments#", "batches#", "records#", "size#", "offsets#", "verdict"),
            [_verified_row(partition) for partition in shown],
        )
    if len(shown) < len(report.partitions):
        others = plural(len(report.partitions) - len(shown), "more partition" if shown else "partition")
        say(f"({others} not shown)")
    records = sum(partition.records for partition in report.partitions)
    size = sum(partition.log_bytes for partition in report.partitions)
    errors = report.errors + sum(partition.errors for partition in report.partitions)
    verdict = (
        "sound" if not errors else f"{plural(errors, 'error')}; `barnabas log repair --dry-run` shows what can be done"
    )
    say(f"{plural(len(report.partitions), 'partition')}, {plural(records, 'record')}, {human_bytes(size)}: {verdict}")


def _verified_row(partition: "PartitionReport") -> list[Any]:
    from rich.text import Text

    from barnabas.cli.output import human_bytes, plural

    if not partition.is_sound:
        verdict = Text(plural(partition.errors, "error"), "bold red")
    elif partition.findings:
        verdict = Text(f"sound, {plural(len(partition.findings), 'note')}", "green")
    else:
        verdict = Text("sound", "green")
    return [
        partition.name,
        f"{partition.segments:,}",
        f"{partition.batches:,}",
        f"{partition.records:,}",
        human_bytes(partition.log_bytes),
        f"{partition.start_offset}..{partition.end_offset}",
        verdict,
    ]


@app.command()
def repair(
    directory: Directory,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.", show_default=False)
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Make a damaged log usable again, as recovery does after a crash.

    Every batch is checked. A log is truncated at its first bad batch: WHAT FOLLOWS IS LOST, so try --dry-run first; on
    a terminal, the plan is shown and you are asked to confirm it. Indexes, snapshots and checkpoints are rebuilt.
    Sound files are not touched, nor is anything that is not part of a log.
    """
    from barnabas.cli.output import complain, confirm
    from barnabas.storage.tools.overlay import OverlayFileSystem
    from barnabas.storage.tools.verify_directory import find_target

    local = LocalFileSystem()
    target = find_target(local, directory)
    lock = _lock(target, dry_run)
    try:
        report = None
        is_asked = not (dry_run or yes) and sys.stdin is not None and sys.stdin.isatty()
        if dry_run or is_asked:
            overlay = OverlayFileSystem(local)
            report = _repair(overlay, target)
            _say_repaired(report, overlay.changes(), is_asked=is_asked)
            if is_asked and report.has_changes:
                confirm("Repair as shown?", "nothing was changed")
                report = None
        if report is None:
            report = _repair(local, target)
            _say_repaired(report, None)
    finally:
        if lock is not None:
            lock.release()
    if not report.after.is_sound:
        complain("some errors remain; `barnabas log verify` shows where" if not dry_run else "some errors would remain")
        raise typer.Exit(1)


def _repair(files: FileSystem, target: "Target") -> "RepairReport":
    from barnabas.cli.output import progress
    from barnabas.storage.tools.repair import repair as repair_target
    from barnabas.storage.tools.verify_directory import target_log_bytes, was_closed

    local = LocalFileSystem()
    with progress("repairing", 3 * target_log_bytes(local, target)) as advance:
        return repair_target(
            files,
            target,
            SystemClock(),
            random.Random(),
            is_settled=was_closed(local, target),
            on_progress=advance,
        )


def _say_repaired(report: "RepairReport", changes: "list[Change] | None", *, is_asked: bool = False) -> None:
    """What was done, or with changes what would be done: for a person who is asked next, or as the whole result."""
    from barnabas.cli.output import human_bytes, plural, say, say_findings

    is_rehearsal = changes is not None
    if not report.has_changes:
        say("nothing to repair")
        say_findings(report.after.findings)
        return
    for done in report.partitions:
        say(f"{done.partition}:")
        for note in done.notes:
            say(f"  {note}")
        if done.failure is not None:
            say(f"  could not be repaired: {done.failure}")
        lost = done.old_end_offset - done.new_end_offset
        if lost > 0:
            verb = "would be lost" if is_rehearsal else "are lost"
            say(f"  the offsets from {done.new_end_offset} to {done.old_end_offset - 1} {verb}")
        say(f"  the log {'would end' if is_rehearsal else 'ends'} at offset {done.new_end_offset}")
    for path in report.lowered:
        say(f"{path}: {'would be rewritten' if is_rehearsal else 'rewritten'}")
    if changes is not None:
        say("")
        say("files that would change:")
        for change in changes:
            sizes = f"{human_bytes(change.old_bytes)} -> {human_bytes(change.new_bytes)}"
            say(f"  {change.kind.value:7}  {change.path}  {sizes}")
        if not is_asked:
            say("nothing was changed; run it again without --dry-run to repair")
    else:
        say(f"repaired {plural(len(report.partitions), 'partition')}")


def _is_in_use(target: "Target") -> bool:
    """Asks the kernel who holds the lock, without taking it: a broker that starts now must not find it taken."""
    from barnabas.storage.directories.meta_properties import LOCK

    if target.log_directory is None:
        return False
    path = os.path.join(target.log_directory, LOCK)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise disk_error("open", path, error) from error
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
    except OSError as error:
        raise disk_error("lock", path, error) from error
    finally:
        os.close(descriptor)


def _lock(target: "Target", dry_run: bool) -> Lock | None:
    """Keeps brokers out while the directory is repaired; a rehearsal only makes sure that none is in."""
    from barnabas.storage.directories.meta_properties import LOCK

    if target.log_directory is None:
        return None
    path = os.path.join(target.log_directory, LOCK)
    if not dry_run:
        return LocalFileSystem().lock(path)
    if _is_in_use(target):
        raise DirectoryLocked(f"{target.log_directory} is in use by another process; stop it first")
    return None
