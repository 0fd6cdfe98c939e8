"""What `make run` rests on: its measures, the search for Java, the archive of Spark's classes; and the demo itself."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.reading.fetched import ConsumedRecord
from barnabas.pipelines import class_data
from barnabas.pipelines.java import JavaUnusable, find_java
from examples.demo_results import Alert, dead_letter_origins, differences, latencies_of, read_alert, record_latencies
from examples.demo_view import Status
from examples.metrics.fleet import ExpectedAlert

ROOT = Path(__file__).resolve().parents[2]
START_MS = 1_714_557_600_000
LONG = pytest.mark.skipif(
    "BARNABAS_LONG_TESTS" not in os.environ, reason="it takes minutes: set BARNABAS_LONG_TESTS=1 to run it"
)
needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="there is no `java` on the PATH")
WAIT_SECONDS = 240


# --- measures -------------------------------------------------------------------------------------------------------


def text_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def record(timestamp_ms: int, value: object, headers: tuple[tuple[str, bytes], ...] = ()) -> ConsumedRecord:
    encoded = value if isinstance(value, bytes) else json.dumps(value).encode()
    return ConsumedRecord(TopicPartition("t", 0), 0, timestamp_ms, None, encoded, headers)


def sample(at_ms: int, produced_ms: int, host: str = "a") -> ConsumedRecord:
    return record(produced_ms, {"host": host, "metric": "cpu", "value": 1, "at": text_of(at_ms)})


def row(stored_ms: int, samples: int, host: str = "a") -> ConsumedRecord:
    window = {"start": text_of(START_MS), "end": text_of(START_MS + 5_000)}
    return record(stored_ms, {"host": host, "metric": "cpu", "window": window, "samples": samples})


def test_latency_of_a_record_ends_with_the_first_row_that_counts_it() -> None:
    samples = [
        sample(START_MS + 1, START_MS + 10),
        record(START_MS + 11, b"{oops"),
        sample(START_MS + 3_000, START_MS + 3_010),
        sample(START_MS + 2_000, START_MS + 3_020),
        sample(START_MS + 1_000, START_MS + 15_000),
        sample(START_MS + 1, START_MS + 20, host="b"),
    ]
    rows = [
        row(START_MS + 100, 1),
        row(START_MS + 3_500, 3),
        row(START_MS + 3_600, 3),
        row(START_MS + 520, 1, host="b"),
    ]

    assert sorted(record_latencies(samples, rows)) == [90, 480, 490, 500]


def test_percentiles_are_values_that_occurred() -> None:
    assert str(latencies_of([3_000, 1_000, 2_000])) == "p50 2.00 s, p95 3.00 s, p99 3.00 s, max 3.00 s"
    assert latencies_of(range(1, 201)).percentiles == {50: 100, 95: 190, 99: 198}


def alert(rule: str, host: str) -> Alert:
    fields = {"id": "1", "host": host, "metric": "cpu", "rule": rule, "severity": "critical", "statistic": "average"}
    window = {"start": text_of(START_MS), "end": text_of(START_MS + 5_000)}
    numbers = {"value": 97.5, "threshold": 95.0, "side": "above"}
    return read_alert(record(START_MS + 8_500, {**fields, **numbers, "window": window}))


def test_missing_alert_and_alert_without_cause_are_told_apart() -> None:
    expected = {
        ExpectedAlert("cpu-high", "a", START_MS, "critical"),
        ExpectedAlert("cpu-high", "b", START_MS, "critical"),
    }
    assert differences(expected, [alert("cpu-high", "a"), alert("cpu-high", "b")]) == []
    assert differences(expected, [alert("cpu-high", "a"), alert("disk-full", "a")]) == [
        f"this alert is missing: cpu-high (critical) of b, window {START_MS}",
        f"this alert has no cause: disk-full (critical) of a, window {START_MS}",
    ]
    assert alert("cpu-high", "a").after_window_ms == 3_500


def test_dead_letter_that_was_written_twice_counts_once() -> None:
    headers = (("barnabas.partition", b"0"), ("barnabas.offset", b"7"))
    other = (("barnabas.partition", b"1"), ("barnabas.offset", b"7"))
    letters = [record(1, b"x", headers), record(2, b"x", headers), record(3, b"y", other)]
    assert dead_letter_origins(letters) == {("0", "7"), ("1", "7")}


def test_status_says_how_far_the_demo_is() -> None:
    assert Status("starting Spark", 6.24).text() == "starting Spark … 6.2 s"
    running = Status("running", 3.0, 30.0, 3_000, 1, "web-002 cpu-high (critical)", 120)
    assert (
        running.text() == "running … 3.0 s, 3,000 records in, 1 alert, lag 120, last alert: web-002 cpu-high (critical)"
    )


# --- Java -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def java_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the only `java` of the PATH would be."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "java"


def pretend(java: Path, version: str) -> None:
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)


def test_java_that_is_missing_or_too_old_is_told_with_what_to_install(java_of: Path) -> None:
    with pytest.raises(JavaUnusable, match=r"there is no `java` on the PATH: install one .*apt install openjdk-17"):
        find_java()
    for old, told in (("11.0.2", "11"), ("1.8.0_392", "8")):
        pretend(java_of, old)
        with pytest.raises(JavaUnusable, match=f"is version {told}: install one"):
            find_java()
    pretend(java_of, "21.0.1")
    assert find_java().version == 21


def test_java_home_goes_before_the_path(java_of: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(java_of, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(JavaUnusable, match="JAVA_HOME is /nowhere, which has no bin/java"):
        find_java()


def test_demo_without_java_says_so_and_shows_the_way(java_of: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "examples.demo"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "Spark needs Java 17 or newer" in done.stderr
    assert "`make run-broker` shows the broker without Spark" in done.stderr


# --- the archive of classes -----------------------------------------------------------------------------------------


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(class_data.SWITCH, raising=False)
    path = class_data.archive_path()
    assert path is not None
    assert path.is_relative_to(tmp_path)
    path.parent.mkdir(parents=True)
    return path


@needs_java
def test_archive_is_used_where_it_is_there_unless_somebody_chose_otherwise(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert class_data.with_archive({"a": "b"}) == {"a": "b"}
    archive.write_bytes(b"")
    own = {class_data.JAVA_OPTIONS: "-Xss4m"}
    assert class_data.with_archive(own)[class_data.JAVA_OPTIONS].startswith(f"-Xss4m -XX:SharedArchiveFile={archive} ")
    shared = {class_data.JAVA_OPTIONS: "-Xshare:off"}
    assert class_data.with_archive(shared) == shared
    monkeypatch.setenv(class_data.SWITCH, "off")
    assert class_data.with_archive(own) == own
    assert class_data.make_archive() is None


@needs_java
@pytest.mark.parametrize("content", [b"", b"no archive at all", bytes(1 << 20)])
def test_damaged_archive_does_not_stop_the_jvm(archive: Path, content: bytes) -> None:
    archive.write_bytes(content)
    options = class_data.with_archive({})[class_data.JAVA_OPTIONS].split()
    done = subprocess.run([find_java().path, *options, "-version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout == ""
    assert done.stderr == find_java().description.replace(", sharing", "")  # no warnings


# --- the demo -------------------------------------------------------------------------------------------------------


def start_demo(brokers: int = 1) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "examples.demo", "--brokers", str(brokers)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def processes_with(text: str) -> list[str]:
    found = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = one.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command:
            found.append(command)
    return found


def wait_until_gone(directory: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while left := processes_with(directory):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


@LONG
@needs_java
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("brokers", [1, 3])
def test_demo_finds_every_incident_and_leaves_nothing_behind(brokers: int) -> None:
    demo = start_demo(brokers)
    output, _ = demo.communicate(timeout=500)
    assert demo.returncode == 0, output
    directory = output.split(" lies in ")[1].split()[0]
    assert "All 12 alerts are those of the incidents in the metrics; none is missing." in output
    assert "latency      p50 " in output
    assert (", halfway (SIGKILL); another one acknowledged records again after " in output) == (brokers > 1)
    assert ("each once, though their leader was killed." in output) == (brokers > 1)
    assert not Path(directory).exists()
    wait_until_gone(directory)


@LONG
@needs_java
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("brokers", "moment"), [(1, "starting Spark"), (1, "running …"), (3, "running …")])
def test_interrupted_demo_stops_and_leaves_nothing_behind(brokers: int, moment: str) -> None:
    demo = start_demo(brokers)
    assert demo.stdout is not None
    said = []
    for line in demo.stdout:
        said.append(line)
        if line.startswith(moment):
            break
    demo.send_signal(signal.SIGINT)
    output, _ = demo.communicate(timeout=WAIT_SECONDS)
    assert demo.returncode == 130, (said, output)
    assert "Traceback" not in output
    directory = "".join(said).split(" lies in ")[1].split()[0]
    assert not Path(directory).exists()
    wait_until_gone(directory)
