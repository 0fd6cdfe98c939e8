"""A real Apache Kafka for those that want one."""

from tests.spark.conftest import kafka_node

__all__ = ["kafka_node"]
