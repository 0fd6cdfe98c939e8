"""What the disks of a node hold when everything is over: the findings of `log verify`, and every record."""

from collections.abc import Iterator
from contextlib import closing

from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import TopicPartition
from barnabas.records.reader import read_records
from barnabas.sim.histories.events import FinalReplica, History, ShownRecord
from barnabas.sim.world.node import BrokerNode
from barnabas.storage.segment.segment import LOG_SUFFIX
from barnabas.storage.tools.batch_stream import StreamedBatch, stream_batches
from barnabas.storage.tools.findings import Severity
from barnabas.storage.tools.verify_directory import Target, find_target, verify_target


def read_disks(node: BrokerNode, history: History, *, with_records: bool) -> None:
    """Of a node that is off."""
    node.disk.before_call = None
    for directory in node.directories:
        target = find_target(node.disk, directory)
        report = verify_target(node.disk, target)
        found = [*report.findings, *(one for partition in report.partitions for one in partition.findings)]
        history.verify_findings += [
            f"{node.name}: {one.place}: {one.problem}" for one in found if one.severity is Severity.ERROR
        ]
        if with_records:
            for partition in target.partitions:
                records = tuple(_records(node.disk, target, partition))
                history.final_replicas.setdefault(partition, []).append(FinalReplica(node.name, records))


def records_on_disk(node: BrokerNode, partition: TopicPartition) -> list[ShownRecord]:
    """What a node has of a partition now; nothing of one that it does not have."""
    for directory in node.directories:
        target = find_target(node.disk, directory)
        if partition in target.partitions:
            return list(_records(node.disk, target, partition))
    return []


def _records(files: FileSystem, target: Target, partition: TopicPartition) -> Iterator[ShownRecord]:
    """Up to damage, if there is any: the findings tell of it."""
    directory = target.path_of(partition)
    for name in sorted(files.list(directory)):
        if name.endswith(LOG_SUFFIX):
            with closing(files.open(f"{directory}/{name}")) as file:
                for item in stream_batches(file):
                    if not isinstance(item, StreamedBatch):
                        return
                    for record in read_records(item.batch):
                        yield ShownRecord(record.offset, item.header.leader_epoch, record.key, record.value)
