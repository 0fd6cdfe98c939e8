"""Sends single records from a task of Spark, over the client that its worker keeps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from barnabas.client.producing.producer import Delivery, Producer, ProducerOptions
from barnabas.spark.worker_process import shared_client
from barnabas.wire.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


Shorten = Callable[[OutgoingRecord], OutgoingRecord | None]
"""A shorter record in the place of one that the topic does not take; None when it cannot be shorter."""


def send_records(bootstrap: str, topic: str, records: Sequence[OutgoingRecord], shorten: Shorten) -> None:
    """Returns when the cluster has them all, those that are too large for the topic shortened."""
    client = shared_client(bootstrap)

    async def send() -> None:
        async with Producer(client.cluster, ProducerOptions()) as producer:
            # A batch is refused as a whole, with records that are small enough: these are sent one by one.
            for refused in await _refused(producer, topic, records):
                record = refused
                while await _refused(producer, topic, [record]):
                    record = _shorter(record, shorten)

    client.wait_for(send())


async def _refused(producer: Producer, topic: str, records: Sequence[OutgoingRecord]) -> list[OutgoingRecord]:
    """Sends records; returns those that are too large for the topic."""
    refused: list[OutgoingRecord] = []
    deliveries: list[tuple[OutgoingRecord, Delivery]] = []
    for record in records:
        try:
            delivery = await producer.send(topic, record.value, key=record.key, headers=record.headers)
        except KafkaError as error:
            _raise_unless_too_large(error)
            refused.append(record)
        else:
            deliveries.append((record, delivery))
    try:
        await producer.flush()
    except KafkaError as error:
        _raise_unless_too_large(error)  # the first failure; each delivery has its own
    for record, delivery in deliveries:
        try:
            await delivery
        except KafkaError as error:
            _raise_unless_too_large(error)
            refused.append(record)
    return refused


def _raise_unless_too_large(error: KafkaError) -> None:
    if error.code not in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        raise error


def _shorter(record: OutgoingRecord, shorten: Shorten) -> OutgoingRecord:
    shorter = shorten(record)
    if shorter is None:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "the topic does not accept even an empty record")
    return shorter
