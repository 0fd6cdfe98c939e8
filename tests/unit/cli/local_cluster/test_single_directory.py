"""Whether the directory of a single broker becomes that of a cluster, and who decides."""

from pathlib import Path
from uuid import UUID

import pytest

from barnabas.base.filesystem import LocalFileSystem
from barnabas.broker.taking_in import CannotTakeIn
from barnabas.cli.local_cluster.single_directory import will_take_in
from barnabas.cli.remote import CommandFailed
from barnabas.metadata.table import FILE_NAME, TAKEN_IN_NAME
from barnabas.storage.directories.meta_properties import META_PROPERTIES, MetaProperties, write_meta_properties
from tests.support.command_line import run


def single(directory: Path, node_id: int = 1) -> Path:
    meta = MetaProperties("castle", node_id, UUID(int=1))
    write_meta_properties(LocalFileSystem(), str(directory / META_PROPERTIES), meta)
    (directory / FILE_NAME).touch()
    return directory


def test_script_must_say_that_it_wants_it(tmp_path: Path) -> None:
    assert not will_take_in(tmp_path, is_told=True), "a new directory"
    single(tmp_path)
    with pytest.raises(CommandFailed, match=r"has the data of a single broker; --take-in makes it the first broker"):
        will_take_in(tmp_path, is_told=False)
    assert will_take_in(tmp_path, is_told=True)


def test_what_was_begun_is_finished_without_asking(tmp_path: Path) -> None:
    (tmp_path / TAKEN_IN_NAME).touch()
    assert will_take_in(tmp_path, is_told=False)


def test_broker_with_another_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotTakeIn, match="has the id 7, not 1"):
        will_take_in(single(tmp_path, 7), is_told=True)


def test_option_is_for_clusters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "up", "--take-in", "--data-dir", str(tmp_path))
    assert (status, err) == (
        1,
        "barnabas: --take-in needs --brokers: it makes a single broker the first one of a cluster\n",
    )
