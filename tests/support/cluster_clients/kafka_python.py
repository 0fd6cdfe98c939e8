"""kafka-python."""

from collections.abc import Mapping, Sequence
from contextlib import closing

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import KafkaError

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


class KafkaPython:
    def overview(self, bootstrap: str) -> Overview:
        with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
            seen = admin.describe_cluster()
        return Overview(frozenset(f"{one['host']}:{one['port']}" for one in seen["brokers"]), seen["controller_id"])

    def produce(self, bootstrap: str, topic: str, records: Mapping[str, str]) -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap)
        try:
            sent = [producer.send(topic, value.encode(), key=key.encode()) for key, value in records.items()]
            for one in sent:
                one.get(TIMEOUT_SECONDS)
        finally:
            producer.close(TIMEOUT_SECONDS)

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        settings = {"group_id": None, "enable_auto_commit": False, "consumer_timeout_ms": TIMEOUT_SECONDS * 1000}
        with closing(KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **settings)) as consumer:
            consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
            records = [next(consumer) for _ in range(count)]
        return [Consumed(one.partition, one.key.decode(), one.value.decode()) for one in records]

    def member(self, bootstrap: str, group: str, topic: str) -> Sequence[str]:
        return member_command("kafka-python", bootstrap, group, topic)

    def create(self, bootstrap: str, topic: str) -> str:
        with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
            try:
                admin.create_topics([NewTopic(topic, PARTITIONS_BEFORE, 9)])
                refusal = ""
            except KafkaError as refused:
                refusal = str(refused)
            admin.create_topics([NewTopic(topic, PARTITIONS_BEFORE, REPLICAS)])
            admin.create_partitions({topic: NewPartitions(total_count=PARTITIONS)})
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": RETENTION_MS})])
        return refusal

    def describe_and_delete(self, bootstrap: str, topic: str) -> Described:
        with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
            (described,) = admin.describe_topics([topic])
            leaders = {one["partition_index"]: one["leader_id"] for one in described["partitions"]}
            configs = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            admin.delete_topics([topic])
        retention_ms = configs["topic"][topic]["retention.ms"]["value"]
        return Described(tuple(leaders[one] for one in sorted(leaders)), retention_ms)
