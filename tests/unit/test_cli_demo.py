"""The demo tells a true story: with fewer records, as a whole, and on a log that does not hold what it must."""

from pathlib import Path

import pytest

from barnabas.cli import demo
from barnabas.cli.output import progress

FIRST_LOG = "00000000000000000000.log"


def ignore(count: int) -> None:
    pass


def test_demo_writes_reads_crashes_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "RECORDS", 40_000)

    demo.run_demo(str(tmp_path / "demo-0"))

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Barnabas writes 40,000 records of 100 bytes")
    assert [line.split()[1] for line in lines if line[0].isdigit()] == [
        "wrote",
        "read",
        "crashed",
        "recovered",
        "compared",
    ]
    assert " flushed records survived" in lines[-1]


def test_comparison_notices_records_that_were_not_written(tmp_path: Path) -> None:
    log, _ = demo.open_demo_log(str(tmp_path / "demo-0"))
    demo.append_records(log, demo.make_records(0, 10))
    demo.append_records(log, demo.make_records(11, 10))
    log.write()

    with pytest.raises(demo.DemoFailed, match="timestamps of the records from 0 on"):
        demo.compare_records(log, ignore)
    log.close()


def test_recovery_that_lost_flushed_records_fails(tmp_path: Path) -> None:
    log, _ = demo.open_demo_log(str(tmp_path / "demo-0"))
    demo.append_records(log, demo.make_records(0, 10))
    log.close()

    with pytest.raises(demo.DemoFailed, match="ends at 10, but it was flushed up to 11"):
        demo.recover_and_compare(str(tmp_path / "demo-0"), flushed=11)


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("writing", 100, unit="records") as advance:
        advance(100)

    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")
