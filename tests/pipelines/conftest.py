"""The tests' one Spark session, as a pipeline wants it."""

from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import broker, spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["broker", "pipeline_session", "spark"]


@pytest.fixture
def pipeline_session(spark: "SparkSession") -> "SparkSession":
    """A session with views and settings of its own, in the same JVM."""
    from barnabas.pipelines.pipeline_session import DEFAULTS
    from barnabas.pipelines.rules import SHUFFLE_PARTITIONS

    session = spark.newSession()
    for name, value in DEFAULTS.items():
        if name.startswith("spark.sql."):
            session.conf.set(name, value)
    session.conf.set(SHUFFLE_PARTITIONS, "2")
    return session
