"""The files of a partition's replicas, read with the log tools while their brokers run: they hold the same.

Followers keep a leader's batches byte for byte, so that replicas of a topic that is not compacted are equal up to the
high watermark, which is the end that consumers see.
"""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from barnabas.base.filesystem import LocalFileSystem
from barnabas.base.ids import TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.client.offsets import end_offsets
from barnabas.storage.tools.batch_stream import StreamedBatch, stream_batches


def check_replicas(bootstrap: str, topic: str, partitions: int, log_directories: Iterable[Path]) -> None:
    """Each directory holds a replica of every partition, with the same batches below the watermark."""
    places = [TopicPartition(topic, index) for index in range(partitions)]
    with BlockingClient(bootstrap) as client:
        watermarks = client.wait_for(end_offsets(client.cluster, places))
    directories = list(log_directories)
    for place, watermark in watermarks.items():
        replicas = [batches_below(directory / str(place), watermark) for directory in directories]
        ends = [batches[-1].header.last_offset + 1 if batches else 0 for batches in replicas]
        assert ends == [watermark] * len(directories), f"{place} ends at {ends}, and is committed up to {watermark}"
        for other in replicas[1:]:
            differing = [
                one.header.base_offset for one, same in zip(replicas[0], other, strict=True) if one.batch != same.batch
            ]
            assert differing == [], place


def batches_below(directory: Path, end: int) -> list[StreamedBatch]:
    """The whole batches below this offset; damage before it fails."""
    found: list[StreamedBatch] = []
    for path in sorted(directory.glob("*.log")):
        with closing(LocalFileSystem().open(str(path))) as file:
            for one in stream_batches(file):
                if found and found[-1].header.last_offset + 1 >= end:
                    return found
                assert isinstance(one, StreamedBatch), f"{path}: {one}"
                found.append(StreamedBatch(one.position, one.header, memoryview(bytes(one.batch))))
    return found
