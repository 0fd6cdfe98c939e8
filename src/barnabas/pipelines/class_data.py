"""An archive of Spark's classes as the JVM wants them in memory (AppCDS), which makes a start of Spark shorter.

`python -m barnabas.pipelines.class_data` makes it, once: a JVM runs a small streaming query and writes at its exit
which classes it had loaded. `sessions` uses it where it is there. It lies in the user's cache, about 180 MB, under
`$XDG_CACHE_HOME/barnabas/class-data` or `~/.cache/barnabas/class-data`:

    PLACE-BUILD.jsa      PLACE: the paths of Java and of Spark's jars; BUILD: which builds of both it was made with

**It never stands in the way.** The JVM writes under another name, which becomes the archive's by a rename when it is
whole. A JVM that finds an archive damaged, or made by another one, goes on without (`-Xshare:auto`). What this module
cannot do (no Java, no cache, somebody else's file) means a start without an archive. `BARNABAS_CLASS_DATA=off` turns it
off. A crash leaves a file that ends in `.part`, which the next making removes.
"""

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.base.clock import SystemClock
from barnabas.pipelines.java import JavaUnusable, find_java
from barnabas.spark.compiled_modules import spark_home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SWITCH: Final = "BARNABAS_CLASS_DATA"
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_ARCHIVE: Final = ".jsa"
_PART: Final = ".part"
_QUIET: Final = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"
"""Hides the JVM's messages about an archive, which do not concern the user of a pipeline."""
_EXIT_SECONDS_MAX: Final = 300.0
_MASTER: Final = "local[1]"


def archive_path(master: str | None = None) -> Path | None:
    """Where the archive for this Java and this Spark is, or would be; None when it is turned off or cannot be.

    The JVM knows its classes by the paths of their files, which a session's SPARK_HOME decides.
    """
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false"):
        return None
    import pyspark

    jars = (spark_home(master) or Path(pyspark.__file__).parent) / "jars"
    try:
        java = find_java()
        changed_ns = jars.stat().st_mtime_ns
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except (JavaUnusable, OSError, RuntimeError):
        return None
    place = _digest(os.path.realpath(java.path), str(jars))
    build = _digest(java.description, pyspark.__version__, str(changed_ns))
    return cache / "barnabas" / "class-data" / f"{place}-{build}{_ARCHIVE}"


def with_archive(settings: Mapping[str, str], master: str | None = None) -> dict[str, str]:
    """Spark's settings, with the archive where there is one. A user's own choice about sharing stays."""
    given = settings.get(JAVA_OPTIONS, "")
    if "-Xshare" in given or "-XX:SharedArchiveFile" in given or "-XX:ArchiveClassesAtExit" in given:
        return dict(settings)
    archive = archive_path(master)
    if archive is None or not _is_ours(archive):
        return dict(settings)
    return {**settings, JAVA_OPTIONS: f"{given} -XX:SharedArchiveFile={archive} {_QUIET}".strip()}


def make_archive() -> Path | None:
    """Makes the archive, unless it is there. None when it is turned off, or when this Java cannot make one."""
    archive = archive_path(_MASTER)
    if archive is None or " " in str(archive):  # Spark splits options at blanks
        return None
    if _is_ours(archive):
        return archive
    archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        part = archive.with_suffix(f".{os.getpid()}{_PART}")
        stack.callback(part.unlink, missing_ok=True)
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-class-data-")))
        _run_spark(directory, f"-XX:ArchiveClassesAtExit={part} {_QUIET}")
        if not part.exists():
            return None
        os.replace(part, archive)
    place = archive.name.partition("-")[0]
    for old in archive.parent.glob(f"{place}-*"):
        if old != archive:
            old.unlink(missing_ok=True)
    return archive


def _run_spark(directory: Path, java_options: str) -> None:
    """A session that loads what pipelines use, and the wait for its JVM to end."""
    from barnabas.pipelines.pipeline_session import start_session

    settings = {JAVA_OPTIONS: java_options, "spark.local.dir": str(directory)}
    spark = start_session("class-data", _MASTER, settings, directory / "spark.log")
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    try:
        _run_query(spark, directory)
    finally:
        spark.stop()
        process.stdin.close()  # which ends the JVM
        process.wait(_EXIT_SECONDS_MAX)


def _run_query(spark: "SparkSession", directory: Path) -> None:
    """JSON, windows, kept state, Python workers and batches in Python."""
    lines = directory / "lines"
    lines.mkdir()
    (lines / "lines.txt").write_text('{"at": "2024-05-01T10:00:00Z", "n": 1}\n')
    rows = spark.readStream.text(str(lines)).mapInArrow(lambda batches: batches, "value string")
    counted = (
        rows.selectExpr("from_json(value, 'at timestamp, n bigint') AS row")
        .selectExpr("row.at", "row.n")
        .withWatermark("at", "1 second")
        .groupBy("at")
        .count()
        .selectExpr("to_json(struct(*)) AS value")
    )

    def look(batch: "DataFrame", _: int) -> None:
        batch.collect()

    query = (
        counted.writeStream.outputMode("update")
        .foreachBatch(look)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _is_ours(archive: Path) -> bool:
    """Whether it is there and of this user: the JVM takes classes from it."""
    try:
        return archive.stat().st_uid == os.getuid()
    except OSError:
        return False


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def main() -> int:
    """Always 0 but for a bug: without the archive everything works, too."""
    from pyspark.errors import PySparkException

    from barnabas.base.errors import BarnabasError

    clock = SystemClock()
    began = clock.monotonic()
    try:
        archive = make_archive()
    except (BarnabasError, PySparkException, OSError) as error:
        sys.stderr.write(f"barnabas: Spark will start without an archive of its classes: {error}\n")
        return 0
    if archive is not None and clock.monotonic() - began > 1:
        sys.stdout.write(f"Spark's classes are in {archive}, made in {clock.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
