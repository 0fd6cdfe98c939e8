"""What starts cost with `format("barnabas")` and with Spark's own Kafka connector: a session's first write and query.

Each is measured in a driver of its own, because everything that a session does once would otherwise be paid by whoever
comes first. The driver first runs a job that has nothing to do with either. Then it writes ten records twice, and reads
them by three queries: the first of the session, the second, and one that goes on from the second's checkpoint. The time
of a query is from `start` to the end of its trigger `availableNow`, with everything in between.

    python -m benchmarks.spark_start KIND BOOTSTRAP        prints its figures as JSON
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from rich.console import Console

from benchmarks.report import Report, seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS: Final = 3
TOPIC: Final = "starts"
WRITES: Final = {"first write": "Spark's first write of a session", "second write": "Spark's second write"}
QUERIES: Final = {
    "first query": "Spark's first query of a session, ten records",
    "second query": "Spark's second query, ten records",
    "restarted query": "Spark's query that goes on, ten records",
}


def compare(report: Report, bootstrap: str, figures: dict[str, str], ours: str, theirs: str) -> None:
    """Some of the figures, of both kinds; the cluster has the topic `TOPIC`."""
    report.say(f"Spark's starts: {ROUNDS} drivers of each kind")
    found: dict[str, list[dict[str, float]]] = {ours: [], theirs: []}
    for _ in range(ROUNDS):
        for kind, measured in found.items():
            command = [sys.executable, "-m", "benchmarks.spark_start", kind, bootstrap]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            measured.append(json.loads(done.stdout.splitlines()[-1]))
    for figure, name in figures.items():
        for kind, who in ((ours, "Barnabas"), (theirs, "connector")):
            report.fact(f"{name}, {who}", median(one[figure] for one in found[kind]), "s")


def main() -> int:
    from benchmarks.spark import spark_with_connector

    kind, bootstrap = sys.argv[1:]
    with spark_with_connector(Report(Console(stderr=True))) as spark, tempfile.TemporaryDirectory() as directory:
        assert spark is not None, "measured only where both are there"
        print(json.dumps(measure(spark, kind, bootstrap, Path(directory))))
    return 0


def measure(spark: "SparkSession", kind: str, bootstrap: str, directory: Path) -> dict[str, float]:
    rows = spark.range(0, 10, 1, 2).selectExpr("cast(cast(id as string) as binary) as value").cache()
    rows.count()
    servers = {"kafka.bootstrap.servers": bootstrap}
    reader = spark.readStream.format(kind).options(**servers, subscribe=TOPIC, startingOffsets="earliest")

    def write() -> None:
        rows.write.format(kind).mode("append").options(**servers, topic=TOPIC).save()

    def query(checkpoint: str) -> None:
        writer = reader.load().writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(directory / checkpoint)).start().awaitTermination()

    return {
        "first write": seconds(write),
        "second write": seconds(write),
        "first query": seconds(lambda: query("first")),
        "second query": seconds(lambda: query("second")),
        "restarted query": _restarted(write, query),
    }


def _restarted(write: Callable[[], None], query: Callable[[str], None]) -> float:
    write()
    return seconds(lambda: query("second"))


if __name__ == "__main__":
    sys.exit(main())
