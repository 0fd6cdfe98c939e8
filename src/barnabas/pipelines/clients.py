"""Sends single records from a task of Spark, over the client that its worker keeps."""

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.client.blocking import BlockingClient
from barnabas.client.cluster import ClusterOptions
from barnabas.client.producer import Producer, ProducerOptions
from barnabas.spark.clients import shared_client


def worker_client(bootstrap: str) -> BlockingClient:
    """The client of this process for a cluster; it is never closed."""
    return shared_client(bootstrap, ClusterOptions())


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def send_records(bootstrap: str, topic: str, records: Sequence[OutgoingRecord]) -> None:
    """Returns when the cluster has them all."""
    client = worker_client(bootstrap)

    async def send() -> None:
        async with Producer(client.cluster, ProducerOptions()) as producer:
            deliveries = [
                await producer.send(topic, record.value, key=record.key, headers=record.headers) for record in records
            ]
            await producer.flush()
            for delivery in deliveries:
                await delivery

    client.wait_for(send())
