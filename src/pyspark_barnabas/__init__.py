"""Spark looks into every package whose name begins with `pyspark_` for a `DefaultSource`: this is how it finds ours."""

from barnabas.spark.source import BarnabasDataSource as DefaultSource

__all__ = ["DefaultSource"]
