"""Reads what a cluster keeps of a group's rebalances, and prints it.

It is in the internal topic `HISTORY_TOPIC`, which brokers of Barnabas write and any client may read. Apache Kafka has
no such topic; then there is no history, and that is no error.
"""

from typing import Any, Final

from barnabas.base.ids import TopicPartition
from barnabas.cli.output import remark, say
from barnabas.client.cluster import Cluster
from barnabas.client.errors import UnknownTopic
from barnabas.client.offsets import EARLIEST, end_offsets, start_offsets
from barnabas.client.reading.consumer import Consumer, ConsumerOptions
from barnabas.groups.effects import RebalanceCompleted
from barnabas.groups.history import HISTORY_TOPIC, GroupHistory, HistoryEntry, decode_history, encode_key, entry_fields
from barnabas.groups.story import Advice, advise_group, advise_rebalance, tell_entry

NOT_KEPT: Final = "this cluster keeps no history of rebalances; Barnabas brokers do, Apache Kafka does not"


async def read_history(cluster: Cluster, group: str) -> GroupHistory | None:
    """The newest that was written for the group; None when the cluster keeps no histories.

    The key's partition is not worked out: the topic is compacted and small, and any of its writers may have chosen it.
    """
    try:
        topic = await cluster.topic(HISTORY_TOPIC)
    except UnknownTopic:
        return None
    partitions = [TopicPartition(HISTORY_TOPIC, partition.index) for partition in topic.partitions]
    starts, ends = await start_offsets(cluster, partitions), await end_offsets(cluster, partitions)
    key = encode_key(group)
    newest: bytes | None = None
    async with Consumer(cluster, ConsumerOptions(out_of_range=EARLIEST)) as consumer:
        consumer.assign({partition: starts[partition] for partition in partitions})
        while True:
            for partition, position in list(consumer.positions.items()):
                if position >= ends[partition]:
                    consumer.drop(partition)
            if not consumer.positions:
                return GroupHistory(group) if newest is None else decode_history(newest)
            for run in await consumer.poll():
                for record in run.records():
                    if record.key == key:
                        newest = record.value


def history_fields(history: GroupHistory) -> dict[str, Any]:
    """For JSON: the facts, the sentences and the advice."""
    return {
        "rebalances": [_entry_fields(entry) for entry in history.entries],
        "advice": [_advice_fields(advice) for advice in advise_group(history)],
    }


def _entry_fields(entry: HistoryEntry) -> dict[str, Any]:
    advice = advise_rebalance(entry) if isinstance(entry, RebalanceCompleted) else []
    return {
        **entry_fields(entry),
        "sentences": tell_entry(entry),
        "advice": [_advice_fields(one) for one in advice],
    }


def _advice_fields(advice: Advice) -> dict[str, Any]:
    return {"likely": advice.likely, "change": advice.change, "settings": list(advice.settings)}


def say_history(history: GroupHistory | None) -> None:
    """Oldest first, so that the newest stands above the prompt. Times are local."""
    if history is None:
        remark(NOT_KEPT)
        return
    if not history.entries:
        remark("no rebalance is recorded for this group")
        return
    for entry in history.entries:
        heading, *sentences = tell_entry(entry, zone=None)
        say(heading)
        for sentence in sentences:
            say(f"  {sentence}")
        if isinstance(entry, RebalanceCompleted):
            _say_advice(advise_rebalance(entry), indent="    ")
    _say_advice(advise_group(history), indent="")


def _say_advice(advice: list[Advice], indent: str) -> None:
    for one in advice:
        say(f"{indent}likely: {one.likely}")
        say(f"{indent}change: {one.change}")
