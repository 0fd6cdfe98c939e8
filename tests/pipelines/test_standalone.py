"""A pipeline on a cluster of Spark's: a master and two workers, started from the wheel, on 127.0.0.1 alone."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.pipelines.faults import ledger
from tests.pipelines.faults.processes import PipelineProcess, ProcessTree
from tests.pipelines.faults.shops import shops_on, watched_sinks
from tests.pipelines.running import write_file

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs a Java runtime: no `java` on the PATH"),
    pytest.mark.skipif(
        "BARNABAS_LONG_TESTS" not in os.environ,
        reason="three more JVMs and a minute: set BARNABAS_LONG_TESTS=1 to run it",
    ),
]

WORKERS = 2
ADDRESS = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
VARIABLES = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "PYSPARK_PYTHON": sys.executable,
}
SETTINGS = """\
spark:
  spark.driver.host: 127.0.0.1
  spark.driver.bindAddress: 127.0.0.1
  spark.executor.cores: 1
  spark.executor.memory: 512m
"""
_MASTER = re.compile(r"spark://127\.0\.0\.1:\d+")


def start_node(directory: Path, name: str, *arguments: str) -> ProcessTree:
    import pyspark

    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    return ProcessTree([str(spark_class), *arguments], directory / f"{name}.log", VARIABLES)


@contextmanager
def spark_cluster(directory: Path) -> Iterator[str]:
    """The master's address, when both workers are registered there. Worker N keeps its files in `worker-N`."""
    with ExitStack() as nodes:
        master = nodes.enter_context(start_node(directory, "master", "org.apache.spark.deploy.master.Master", *ADDRESS))
        master.wait_until(lambda: _MASTER.search(master.said) is not None, "the master has a port")
        found = _MASTER.search(master.said)
        assert found is not None
        for number in range(1, WORKERS + 1):
            share = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"worker-{number}"))
            nodes.enter_context(
                start_node(
                    directory,
                    f"worker-{number}",
                    "org.apache.spark.deploy.worker.Worker",
                    *(*ADDRESS, *share, found[0]),
                )
            )
        master.wait_until(lambda: master.said.count("Registering worker") == WORKERS, "the workers are registered")
        yield found[0]


def test_streaming_pipeline_on_a_standalone_cluster_uses_both_workers(broker: Broker, tmp_path: Path) -> None:
    file = write_file(tmp_path, ledger.stateless_pipeline(records_max_per_batch=60) + SETTINGS, broker)
    with spark_cluster(tmp_path) as master, shops_on(broker.bootstrap) as shops:
        shops.open()
        shops.sell(120)
        sinks = watched_sinks(tmp_path, "copies", "archive")
        with PipelineProcess(file, master=master) as process:
            process.wait_until(lambda: all(sum(sink.ends().values()) == 120 for sink in sinks), "all is read")
            shops.sell(60)
            process.wait_until(lambda: all(sum(sink.ends().values()) == 180 for sink in sinks), "the rest is read")
            assert process.terminate() == 0, process.said
        expected = ledger.Ledger(shops.sold)
        expected.check_archive(tmp_path / "table")
        expected.check_copies(shops.values("copies"), may_be_double=shops.numbers)
    for number in range(1, WORKERS + 1):
        assert list((tmp_path / f"worker-{number}").glob("app-*/*/stderr")), f"worker {number} had no executor"
