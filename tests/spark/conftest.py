"""One Spark session for all tests that need one, and brokers for it. Skipped where pyspark or Java is missing."""

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.testing import Broker
from tests.support.kafka import KafkaNode, KafkaUnavailable, kafka_jars
from tests.support.spark_connector import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# For every JVM of Spark, also those of processes that a test starts: the time of the best compiler and of a collector
# with threads of its own is never made up for in a test. The environment's own choice stays.
for _variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(_variable, "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")

SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """With retried tasks (`local[2,4]`), in a directory of its own."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
    if shutil.which("java") is None:
        pytest.skip("Spark needs a Java runtime: no `java` on the PATH")
    from barnabas.spark import session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    directory = tmp_path_factory.mktemp("spark")
    settings = {
        **SPARK_SETTINGS,
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    try:
        settings["spark.jars"] = ",".join(map(str, connector_jars()))
    except KafkaUnavailable as reason:
        logging.getLogger(__name__).warning("without Spark's Kafka connector: %s", reason)
    with pytest.MonkeyPatch.context() as patch:
        # What Spark keeps, it keeps relative to the current directory.
        patch.chdir(directory)
        started = session("barnabas-tests", master="local[2,4]", settings=settings)
    started.sparkContext.setLogLevel("ERROR")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    yield started
    started.stop()


@pytest.fixture
def connector(spark: "SparkSession") -> str:
    """The name of Spark's Kafka connector, where its jars can be had."""
    if not spark.conf.get("spark.jars", ""):
        pytest.skip("Spark's Kafka connector is not there: its jars come from Maven Central by `mvn`")
    return "kafka"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="session")
def kafka_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """A real Apache Kafka, shared: use topics of your own."""
    try:
        kafka_jars()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    directory: Path = tmp_path_factory.mktemp("kafka")
    with KafkaNode(directory) as node:
        yield node
