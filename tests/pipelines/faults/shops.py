"""The ledger's topics on a cluster, whichever that is: filled and read through our client."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.base.ids import TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.client.offsets import end_offsets
from tests.pipelines.faults import ledger
from tests.pipelines.faults.kill_points import WatchedSink

OUTPUT_PARTITIONS = 2


@contextmanager
def shops_on(bootstrap: str) -> "Iterator[Shops]":
    with BlockingClient(bootstrap) as client:
        yield Shops(client)


class Shops:
    """Sells into the topic `sales`, and remembers what was sold."""

    def __init__(self, client: BlockingClient) -> None:
        self.client = client
        self.sold: list[ledger.Sale] = []

    def open(self) -> None:
        self.client.create_topic("sales", partitions=ledger.PARTITIONS)
        for topic in ledger.TOPICS:
            self.client.create_topic(topic, partitions=OUTPUT_PARTITIONS)

    def sell(self, count: int) -> None:
        self._send(ledger.sales(len(self.sold), count))

    def close_windows(self) -> None:
        self._send([ledger.closing_sale(len(self.sold))])

    def _send(self, sold: list[ledger.Sale]) -> None:
        for partition, its_sales in ledger.by_partition(sold).items():
            self.client.produce("sales", [sale.value() for sale in its_sales], partition=partition)
        self.sold += sold

    @property
    def numbers(self) -> set[int]:
        """Of all sales."""
        return {sale.id for sale in self.sold}

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.client.read(topic)]

    def records_in(self, topic: str) -> int:
        return records_in(self.client, topic)


def records_in(client: BlockingClient, topic: str) -> int:
    """How many a topic has, when none was deleted."""
    members = client.wait_for(client.cluster.topic(topic)).partitions
    partitions = [TopicPartition(topic, member.index) for member in members]
    return sum(client.wait_for(end_offsets(client.cluster, partitions)).values())


def watched_sinks(directory: Path, *names: str) -> list[WatchedSink]:
    """Of a ledger's pipeline in a directory."""
    targets: dict[str, str | Path] = {**{name: name for name in ledger.TOPICS}, "archive": directory / "table"}
    return [WatchedSink(name, directory / "checkpoint", targets[name]) for name in names]
