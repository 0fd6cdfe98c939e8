"""`format("barnabas")` where a program is not the driver: Spark Connect, and Declarative Pipelines on top of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing import Broker

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
pytest.importorskip("grpc", reason="Spark Connect needs grpcio: pip install 'pyspark[connect]'")
pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status: pip install 'pyspark[connect]'")

TIMEOUT_SECONDS = 280

CONNECT = """\
import sys
import barnabas.spark
from pyspark.sql import SparkSession

bootstrap, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "orders", "startingOffsets": "earliest"}
rows = spark.read.format("barnabas").options(**options).load()
assert sorted(row.value for row in rows.select("value").collect()) == [b"1", b"2"]
sink = {"kafka.bootstrap.servers": bootstrap, "topic": "copies", "checkpointLocation": checkpoint}
stream = spark.readStream.format("barnabas").options(**options).load().select("key", "value")
query = stream.writeStream.format("barnabas").options(**sink).trigger(availableNow=True).start()
query.awaitTermination()
spark.stop()
"""

MANIFEST = """\
name: shop
storage: file://STORAGE
libraries:
  - glob:
      include: transformations/**
"""

FLOWS = """\
import os
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
servers = {"kafka.bootstrap.servers": os.environ["BOOTSTRAP"]}
dp.create_sink("copies", "barnabas", {**servers, "topic": "copies"})


@dp.table
def orders():
    options = {**servers, "subscribe": "orders", "startingOffsets": "earliest"}
    return spark.readStream.format("barnabas").options(**options).load()


@dp.append_flow(target="copies")
def copy():
    return spark.readStream.table("orders").select("key", "value")
"""


def run(command: list[str], directory: Path, **variables: str) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        **variables,
    }
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def fill(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.create_topic("copies")
    broker.append("orders", [b"1", b"2"])


def test_spark_connect_reads_and_writes(broker: Broker, tmp_path: Path) -> None:
    fill(broker)
    program = tmp_path / "program.py"
    program.write_text(CONNECT)
    run([sys.executable, str(program), broker.bootstrap, str(tmp_path / "checkpoint")], tmp_path)
    assert [record.value for record in broker.records("copies")] == [b"1", b"2"]


def test_declarative_pipeline_reads_a_topic_and_writes_to_a_sink(broker: Broker, tmp_path: Path) -> None:
    fill(broker)
    (tmp_path / "spark-pipeline.yml").write_text(MANIFEST.replace("STORAGE", str(tmp_path / "storage")))
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "flows.py").write_text(FLOWS)
    spark_pipelines = Path(sys.executable).with_name("spark-pipelines")
    run([str(spark_pipelines), "run", "--conf", "spark.ui.enabled=false"], tmp_path, BOOTSTRAP=broker.bootstrap)
    assert [record.value for record in broker.records("copies")] == [b"1", b"2"]
