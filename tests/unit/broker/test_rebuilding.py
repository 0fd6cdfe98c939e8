"""A broker whose metadata file is gone: it does not begin another cluster, and the file can be made again."""

import asyncio
import shutil
import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import pytest

from barnabas.base.clock import SystemClock
from barnabas.base.errors import BarnabasError, DirectoryLocked
from barnabas.base.filesystem import LocalFileSystem
from barnabas.broker.rebuilding import MetadataLost, MetadataReadable, Rebuilding, rebuild
from barnabas.metadata.errors import NewerMetadata
from barnabas.metadata.rebuild import CannotRebuild
from barnabas.metadata.table import FILE_NAME
from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import ServedBroker, served_broker


def rebuild_in(*directories: Path, **options: Any) -> Rebuilding:
    return rebuild(LocalFileSystem(), SystemClock(), Random(3), [str(path) for path in directories], **options)


def files_in(*directories: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for root in directories for path in root.rglob("*") if path.is_file()}


async def producer_id(broker: ServedBroker) -> int:
    answer = await broker.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1000)
    assert answer.error_code.value == 0
    return int(answer.producer_id)


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "a", tmp_path / "b"


def log_dirs(two: tuple[Path, Path]) -> str:
    return ",".join(map(str, two))


def test_rebuilt_metadata_serves_the_same_topics_with_their_records(two: tuple[Path, Path]) -> None:
    async def main() -> None:
        async with served_broker(two[0], has_metadata_file=True, log_dirs=log_dirs(two)) as broker:
            await broker.create("orders", 3, cleanup_policy="compact")
            await broker.create("letters", 1, retention_ms="60000")
            for index in range(3):
                broker.append("orders", [1, 2], index)
            cluster_id = broker.broker.services.cluster_id
            ids = {name: topic.id for name, topic in broker.broker.replicas.image.topics.items()}
            first_id = await producer_id(broker)
        (two[0] / FILE_NAME).unlink()
        logs_before = files_in(*two)
        with pytest.raises(MetadataLost, match=f"barnabas metadata rebuild --data-dir {two[0]} --data-dir {two[1]}"):
            async with served_broker(two[0], has_metadata_file=True, log_dirs=log_dirs(two)):
                pass
        assert files_in(*two) == logs_before, "a refused start changes nothing"

        done = rebuild_in(*two)
        assert done.backup is None
        after = files_in(*two)
        del after[str(two[0] / FILE_NAME)]
        assert after == logs_before, "no log is touched"

        async with served_broker(two[0], has_metadata_file=True, log_dirs=log_dirs(two)) as broker:
            image = broker.broker.replicas.image
            assert broker.broker.services.cluster_id == cluster_id
            assert {name: topic.id for name, topic in image.topics.items()} == ids
            assert [broker.partition("orders", index).end_offset for index in range(3)] == [2, 2, 2]
            assert broker.log("letters").config.retention_ms == -1
            assert await producer_id(broker) > first_id
            broker.append("orders", [3])
            await broker.create("more")

    asyncio.run(main())


def test_damaged_file_is_named_with_the_command_and_kept_beside_the_new_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with served_broker(tmp_path, has_metadata_file=True) as broker:
            await broker.create("orders")
        damaged = b"not a database" * 1000
        (tmp_path / FILE_NAME).write_bytes(damaged)
        with pytest.raises(MetadataLost, match=r"is damaged .*barnabas metadata rebuild --data-dir"):
            async with served_broker(tmp_path, has_metadata_file=True):
                pass
        rebuild_in(tmp_path)
        assert (tmp_path / f"{FILE_NAME}.old1").read_bytes() == damaged
        async with served_broker(tmp_path, has_metadata_file=True) as broker:
            assert list(broker.broker.replicas.image.topics) == ["orders"]

    asyncio.run(main())


def test_rebuild_leaves_a_readable_file_a_newer_one_and_a_running_broker_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with served_broker(tmp_path, has_metadata_file=True) as broker:
            await broker.create("orders", retention_ms="60000")
            with pytest.raises(DirectoryLocked):
                rebuild_in(tmp_path, replace=True)
        before = (tmp_path / FILE_NAME).read_bytes()
        with pytest.raises(MetadataReadable, match="--replace"):
            rebuild_in(tmp_path)
        assert (tmp_path / FILE_NAME).read_bytes() == before
        assert rebuild_in(tmp_path, replace=True).backup == f"{tmp_path / FILE_NAME}.old1"
        assert (tmp_path / f"{FILE_NAME}.old1").read_bytes() == before
        again = rebuild_in(tmp_path, replace=True)
        assert again.backup == f"{tmp_path / FILE_NAME}.old2"

    asyncio.run(main())
    _set_format_version(tmp_path / FILE_NAME, 99)
    with pytest.raises(NewerMetadata):
        rebuild_in(tmp_path)


def _set_format_version(path: Path, version: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


def test_partitions_of_a_directory_that_was_not_named_are_missed(two: tuple[Path, Path]) -> None:
    async def main() -> None:
        async with served_broker(two[0], has_metadata_file=True, log_dirs=log_dirs(two)) as broker:
            await broker.create("orders", 4)
        with pytest.raises(MetadataLost, match=f"{FILE_NAME} is in {two[0]}: give that directory first"):
            async with served_broker(two[0], has_metadata_file=True, log_dirs=log_dirs((two[1], two[0]))):
                pass
        with pytest.raises(MetadataLost, match="give that directory first"):
            rebuild_in(two[1], two[0])
        (two[0] / FILE_NAME).unlink()
        with pytest.raises(CannotRebuild, match="give all log directories"):
            rebuild_in(two[0])
        assert not (two[0] / FILE_NAME).exists()
        assert rebuild_in(*two, dry_run=True).metadata.missing == []
        assert not (two[0] / FILE_NAME).exists()

    asyncio.run(main())


def test_directories_of_two_brokers_are_refused(two: tuple[Path, Path]) -> None:
    async def main() -> None:
        for number, directory in enumerate(two):
            async with served_broker(directory, has_metadata_file=True, node_id=str(number)):
                pass

    asyncio.run(main())
    (two[1] / FILE_NAME).unlink()
    with pytest.raises(CannotRebuild, match="different brokers"):
        rebuild_in(*two, replace=True)


def test_log_of_a_lost_file_is_not_applied_to_a_new_one(tmp_path: Path) -> None:
    """SQLite would take the `-wal` of a file that is gone for that of the new file."""

    async def main() -> None:
        async with served_broker(tmp_path, has_metadata_file=True) as broker:
            await broker.create("orders")
            (tmp_path / "copy-wal").write_bytes((tmp_path / f"{FILE_NAME}-wal").read_bytes())
        (tmp_path / FILE_NAME).unlink()
        (tmp_path / "copy-wal").rename(tmp_path / f"{FILE_NAME}-wal")
        shutil.rmtree(tmp_path / "orders-0")
        rebuild_in(tmp_path)
        async with served_broker(tmp_path, has_metadata_file=True) as broker:
            assert list(broker.broker.replicas.image.topics) == []

    asyncio.run(main())


def test_new_directories_begin_a_new_cluster(two: tuple[Path, Path]) -> None:
    async def main() -> None:
        two[1].mkdir()
        (two[1] / "lost+found").mkdir()
        async with served_broker(two[0], has_metadata_file=True, log_dirs=log_dirs(two)) as broker:
            await broker.create("orders")

    asyncio.run(main())


def test_directory_that_only_has_the_name_of_a_partition_is_nobodys_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It stops no first start, keeps its name and its files, and becomes no topic when the metadata is made anew."""
    photos = tmp_path / "photos-2024"
    photos.mkdir()
    (photos / "beach.jpg").write_bytes(b"sand")
    (photos / "draft.tmp").write_bytes(b"water")
    (tmp_path / "empty-1").mkdir()
    before = files_in(photos)

    async def main() -> None:
        for _ in range(2):
            async with served_broker(tmp_path, has_metadata_file=True) as broker:
                if "orders" not in broker.broker.replicas.image.topics:
                    await broker.create("orders")
                assert broker.broker.opening.strays == []
                assert sorted(broker.broker.opening.malformed) == [str(tmp_path / "empty-1"), str(photos)]
        (tmp_path / FILE_NAME).unlink()
        done = rebuild_in(tmp_path)
        assert [str(one.name) for one in done.found.partitions] == ["orders-0"]

    asyncio.run(main())
    assert f"{photos} is left alone: it holds no log" in caplog.messages
    assert files_in(photos) == before
    assert (tmp_path / "empty-1").is_dir()


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BarnabasError, match="is not a directory"):
        rebuild_in(tmp_path / "none")
