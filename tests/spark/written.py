"""What is in a topic, read by a client that shares no code with ours (confluent-kafka)."""

from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

TIMEOUT_SECONDS = 120


class Written(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_topic(bootstrap: str, topic: str) -> list[Written]:
    """Every record that is in the topic now, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": False,
        }
    )
    try:
        partitions = consumer.list_topics(topic, TIMEOUT_SECONDS).topics[topic].partitions
        ends = {
            index: consumer.get_watermark_offsets(TopicPartition(topic, index), TIMEOUT_SECONDS)[1]
            for index in partitions
        }
        consumer.assign([TopicPartition(topic, index, 0) for index, end in ends.items() if end])
        written: list[Written] = []
        while missing := sum(ends.values()) - len(written):
            messages = consumer.consume(min(missing, 10_000), TIMEOUT_SECONDS)  # waits for so many
            assert messages, f"{missing} records did not come"
            for message in messages:
                assert message.error() is None, message.error()
                headers = tuple(message.headers() or ())
                written.append(Written(message.partition(), message.key(), message.value(), headers))
        return written
    finally:
        consumer.close()
