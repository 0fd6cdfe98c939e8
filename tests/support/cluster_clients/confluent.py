"""confluent-kafka, on librdkafka."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.support.cluster_clients.calls import (
    PARTITIONS,
    PARTITIONS_BEFORE,
    REPLICAS,
    RETENTION_MS,
    TIMEOUT_SECONDS,
    Consumed,
    Described,
    Overview,
)
from tests.support.cluster_clients.python_members import member_command


def _settings(bootstrap: str, **others: Any) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "log_level": 0, **others}


class Confluent:
    def overview(self, bootstrap: str) -> Overview:
        admin = AdminClient(_settings(bootstrap))
        seen = admin.describe_cluster().result(TIMEOUT_SECONDS)
        return Overview(frozenset(f"{node.host}:{node.port}" for node in seen.nodes), seen.controller.id)

    def produce(self, bootstrap: str, topic: str, records: Mapping[str, str]) -> None:
        producer = Producer(_settings(bootstrap, partitioner="murmur2_random"))
        for key, value in records.items():
            producer.produce(topic, value, key=key)
        assert producer.flush(TIMEOUT_SECONDS) == 0

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        with closing(Consumer(_settings(bootstrap, **{"group.id": "unused", "enable.auto.commit": False}))) as consumer:
            consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
            messages = consumer.consume(count, TIMEOUT_SECONDS)
        assert [message.error() for message in messages if message.error()] == []
        return [Consumed(one.partition(), one.key().decode(), one.value().decode()) for one in messages]

    def member(self, bootstrap: str, group: str, topic: str) -> Sequence[str]:
        return member_command("confluent", bootstrap, group, topic)

    def create(self, bootstrap: str, topic: str) -> str:
        admin = AdminClient(_settings(bootstrap))
        try:
            _wait(admin.create_topics([NewTopic(topic, PARTITIONS_BEFORE, 9)]))
            refusal = ""
        except KafkaException as refused:
            refusal = str(refused)
        _wait(admin.create_topics([NewTopic(topic, PARTITIONS_BEFORE, REPLICAS)]))
        _wait(admin.create_partitions([NewPartitions(topic, PARTITIONS)]))
        entry = ConfigEntry("retention.ms", RETENTION_MS, incremental_operation=AlterConfigOpType.SET)
        _wait(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]))
        return refusal

    def describe_and_delete(self, bootstrap: str, topic: str) -> Described:
        admin = AdminClient(_settings(bootstrap))
        described = admin.list_topics(topic, TIMEOUT_SECONDS).topics[topic]
        leaders = tuple(described.partitions[index].leader for index in sorted(described.partitions))
        resource = ConfigResource(ResourceType.TOPIC, topic)
        configs = admin.describe_configs([resource])[resource].result(TIMEOUT_SECONDS)
        _wait(admin.delete_topics([topic]))
        return Described(leaders, configs["retention.ms"].value)


def _wait(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(TIMEOUT_SECONDS)
