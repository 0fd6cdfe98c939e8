"""A broker on log directories that Apache Kafka wrote: taken over, or refused with every file as it was."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from barnabas.base.clock import SystemClock
from barnabas.base.errors import BarnabasError, DirectoryLocked
from barnabas.base.filesystem import LocalFileSystem
from barnabas.broker.adoption import CannotAdopt
from barnabas.broker.app import Broker
from barnabas.broker.kafka_metadata import UnreadableKafkaMetadata
from barnabas.broker.rebuilding import MetadataLost, rebuild
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.rebuild import CannotRebuild
from barnabas.metadata.table import FILE_NAME
from barnabas.storage.directories.meta_properties import META_PROPERTIES, read_meta_properties
from tests.support import kraft
from tests.support.broker_parts import ServedBroker
from tests.support.kraft import NODE_ID, config_record, partition_record, topic_record, write_logs, write_segment

ORDERS, LETTERS, ELSEWHERE = UUID(int=1), UUID(int=2), UUID(int=77)
TOPICS = {"orders": (ORDERS, 2), "letters": (LETTERS, 1)}
RECORDS = [
    topic_record("orders", ORDERS),
    partition_record(ORDERS, 0, leader_epoch=4),
    partition_record(ORDERS, 1),
    config_record("orders", "retention.ms", "604800001"),
    config_record("orders", "remote.storage.enable", "true"),
    topic_record("letters", LETTERS),
    partition_record(LETTERS),
    kraft.producer_ids(3_000),
]


@pytest.fixture
def kafkas(tmp_path: Path) -> Path:
    """What a Kafka that was alone has left."""
    directory = tmp_path / "kafka"
    write_logs([directory], TOPICS)
    write_segment(directory, RECORDS)
    return directory


def broker_on(*directories: Path, **texts: str) -> Broker:
    settings = {name.replace("_", "."): text for name, text in texts.items()}
    log_dirs = ",".join(map(str, directories))
    return Broker(BrokerSettings({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": log_dirs, **settings}))


def files_in(*directories: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and when it was written."""
    found = [path for root in directories for path in root.rglob("*")]
    return {str(path): (b"" if path.is_dir() else path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def refuse(broker: Broker, expected: type[BarnabasError], said: str, *directories: Path) -> None:
    before = files_in(*directories)

    async def main() -> None:
        async with broker:
            pass

    with pytest.raises(expected, match=said):
        asyncio.run(main())
    assert files_in(*directories) == before


def end_offsets(broker: Broker) -> dict[str, int]:
    return {str(one.name): one.high_watermark for one in broker.replicas}


# Taken over


def test_topics_with_ids_settings_and_records_are_taken_over(kafkas: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    meta_before = (kafkas / META_PROPERTIES).read_bytes()

    async def main() -> None:
        async with broker_on(kafkas) as broker:
            image = broker.replicas.image
            assert (broker.node_id, broker.services.cluster_id) == (NODE_ID, kraft.CLUSTER_ID)
            assert {name: topic.id for name, topic in image.topics.items()} == {"orders": ORDERS, "letters": LETTERS}
            assert image.configs_of_topic("orders") == {"retention.ms": "604800001"}
            assert image.configs_of_topic("letters") == {}
            assert end_offsets(broker) == {"orders-0": 2, "orders-1": 2, "letters-0": 2}
            first = broker.replicas.get("orders", 0)
            assert first is not None
            assert first.leader_epoch > 4, "clients know 4 already"
            await ServedBroker(broker).create("new")
        assert (kafkas / META_PROPERTIES).read_bytes() == meta_before
        async with broker_on(kafkas) as broker:
            assert set(broker.replicas.image.topics) == {"orders", "letters", "new"}

    asyncio.run(main())
    said = [record.getMessage() for record in caplog.records if "adoption" in record.name]
    assert said == [
        f"took over the data of Apache Kafka in {kafkas}: cluster {kraft.CLUSTER_ID}, topics: 2, partitions: 3",
        "the setting remote.storage.enable=true of topic orders is skipped: Barnabas does not have it",
    ]


def test_snapshot_and_what_follows_it_are_taken_over(tmp_path: Path) -> None:
    write_logs([tmp_path], TOPICS)
    kraft.write_snapshot(tmp_path, RECORDS[:4], 40)
    write_segment(tmp_path, [kraft.NO_OP] * 10, 0)
    write_segment(tmp_path, [topic_record("gone", UUID(int=9))] + [kraft.NO_OP] * 9 + RECORDS[4:], 30)
    torn = write_segment(tmp_path, [kraft.NO_OP] * 2, 44)
    torn.write_bytes(torn.read_bytes()[:-3])

    async def main() -> None:
        async with broker_on(tmp_path) as broker:
            assert set(broker.replicas.image.topics) == {"orders", "letters"}

    asyncio.run(main())


def test_partition_without_a_directory_begins_empty_and_an_unknown_one_is_left_alone(tmp_path: Path) -> None:
    write_logs([tmp_path], {**TOPICS, "deleted": (UUID(int=5), 1)})
    meta = read_meta_properties(LocalFileSystem(), str(tmp_path / META_PROPERTIES))
    assert meta is not None
    assert meta.directory_id is not None
    created_at_the_kill = partition_record(LETTERS, 1, directories=(meta.directory_id,))
    write_segment(tmp_path, [*RECORDS, created_at_the_kill])

    async def main() -> None:
        async with broker_on(tmp_path) as broker:
            assert set(broker.replicas.image.topics) == {"orders", "letters"}
            assert end_offsets(broker) == {"orders-0": 2, "orders-1": 2, "letters-0": 2, "letters-1": 0}

    asyncio.run(main())


def test_several_log_directories_are_taken_over_together(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    write_logs([first, second], TOPICS)
    write_segment(first, RECORDS)

    async def main() -> None:
        async with broker_on(first, second) as broker:
            assert end_offsets(broker) == {"orders-0": 2, "orders-1": 2, "letters-0": 2}

    asyncio.run(main())


def test_rebuilding_takes_the_settings_from_kafkas_metadata(kafkas: Path) -> None:
    done = rebuild(LocalFileSystem(), SystemClock(), Random(1), [str(kafkas)])

    assert {topic.name: topic.configs for topic in done.metadata.topics} == {
        "orders": {"retention.ms": "604800001"},
        "letters": {},
    }

    async def main() -> None:
        async with broker_on(kafkas) as broker:
            assert end_offsets(broker) == {"orders-0": 2, "orders-1": 2, "letters-0": 2}

    asyncio.run(main())


def test_crash_before_the_metadata_file_is_there_lets_the_next_start_begin_again(
    kafkas: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = LocalFileSystem.rename

    def fail(files: LocalFileSystem, old: str, new: str) -> None:
        if new.endswith(FILE_NAME):
            raise KeyboardInterrupt
        rename(files, old, new)

    async def main() -> None:
        async with broker_on(kafkas) as broker:
            assert end_offsets(broker) == {"orders-0": 2, "orders-1": 2, "letters-0": 2}

    monkeypatch.setattr(LocalFileSystem, "rename", fail)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    monkeypatch.undo()
    asyncio.run(main())


def test_metadata_that_was_lost_after_the_takeover_is_not_taken_from_kafka_again(kafkas: Path) -> None:
    async def main() -> None:
        async with broker_on(kafkas) as broker:
            await ServedBroker(broker).create("new")

    asyncio.run(main())
    (kafkas / FILE_NAME).unlink()
    refuse(broker_on(kafkas), MetadataLost, "holds 4 partitions, but there is no", kafkas)


# Refused


def test_directory_that_kafka_uses_is_refused(kafkas: Path) -> None:
    (kafkas / ".lock").touch()
    lock = LocalFileSystem().lock(str(kafkas / ".lock"))
    refuse(broker_on(kafkas), DirectoryLocked, "is in use by another process", kafkas)
    lock.release()


def test_directory_of_another_node_is_refused(kafkas: Path) -> None:
    refuse(broker_on(kafkas, node_id="1"), CannotRebuild, "belong to node 7, not to node 1", kafkas)


@pytest.mark.parametrize(
    ("records", "expected", "said"),
    [
        (
            [*RECORDS, partition_record(LETTERS, 1, replicas=(NODE_ID, 8))],
            CannotAdopt,
            r"replicas on other nodes \(8\).*`barnabas metadata rebuild --data-dir",
        ),
        (
            [*RECORDS, partition_record(LETTERS, 1, directories=(ELSEWHERE,))],
            CannotAdopt,
            r"letters-1 must be in another log directory: give all log\.dirs",
        ),
        ([*RECORDS, kraft.frame(3, 9, b"")], UnreadableKafkaMetadata, "the metadata log was written by a newer Kafka"),
    ],
    ids=["replicas elsewhere", "directory elsewhere", "newer Kafka"],
)
def test_metadata_that_says_more_than_is_here_is_refused(
    tmp_path: Path, records: list[bytes], expected: type[BarnabasError], said: str
) -> None:
    write_logs([tmp_path], TOPICS)
    write_segment(tmp_path, records)
    refuse(broker_on(tmp_path), expected, said, tmp_path)


def _flip_a_byte(directory: Path) -> None:
    path = directory / kraft.METADATA_LOG / kraft.FIRST_SEGMENT
    content = bytearray(path.read_bytes())
    content[80] ^= 1
    path.write_bytes(content)


def _cut_a_snapshot(directory: Path) -> None:
    kraft.write_snapshot(directory, RECORDS, 8, is_whole=False)


def _lose_a_segment(directory: Path) -> None:
    (directory / kraft.METADATA_LOG / kraft.FIRST_SEGMENT).unlink()
    write_segment(directory, RECORDS, 20)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_flip_a_byte, "is damaged at byte 0"),
        (_cut_a_snapshot, "the snapshot .* has no end"),
        (_lose_a_segment, "has no records from offset 0 to 20"),
    ],
)
def test_damaged_metadata_of_kafka_is_refused(kafkas: Path, damage: Callable[[Path], None], said: str) -> None:
    damage(kafkas)
    refuse(broker_on(kafkas), UnreadableKafkaMetadata, said, kafkas)


def test_directory_of_a_kafka_with_zookeeper_is_refused_with_the_way_on(tmp_path: Path) -> None:
    write_logs([tmp_path], TOPICS)
    (tmp_path / META_PROPERTIES).write_text(f"version=0\nbroker.id={NODE_ID}\ncluster.id={kraft.CLUSTER_ID}\n")
    refuse(
        broker_on(tmp_path), CannotAdopt, f"with ZooKeeper.*`barnabas metadata rebuild --data-dir {tmp_path}`", tmp_path
    )

    done = rebuild(LocalFileSystem(), SystemClock(), Random(1), [str(tmp_path)])
    assert sorted(done.metadata.guessed) == ["letters", "orders"]

    async def main() -> None:
        async with broker_on(tmp_path) as broker:
            assert broker.node_id == NODE_ID
            assert end_offsets(broker) == {"orders-0": 2, "orders-1": 2, "letters-0": 2}

    asyncio.run(main())


def test_directory_that_kafka_has_used_again_is_refused_until_its_metadata_is_read_anew(kafkas: Path) -> None:
    async def start() -> set[str]:
        async with broker_on(kafkas) as broker:
            return set(broker.replicas.image.topics)

    assert asyncio.run(start()) == {"orders", "letters"}
    later = UUID(int=3)
    write_logs([kafkas], {"later": (later, 1)})
    write_segment(kafkas, [*RECORDS, topic_record("later", later), partition_record(later)])

    refuse(
        broker_on(kafkas),
        CannotAdopt,
        f"Apache Kafka has used {kafkas} since .*`barnabas metadata rebuild --data-dir {kafkas} --replace`",
        kafkas,
    )
    rebuild(LocalFileSystem(), SystemClock(), Random(1), [str(kafkas)], replace=True)
    assert asyncio.run(start()) == {"orders", "letters", "later"}
