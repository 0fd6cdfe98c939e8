"""`barnabas log verify` and `repair`: what is found, planned and changed, and with which exit status."""

import json
from pathlib import Path

import pytest

from barnabas.base.filesystem import LocalFileSystem
from barnabas.base.ids import TopicPartition
from barnabas.cli.output import human_bytes, plural
from barnabas.storage.checkpoints import encode_offsets
from tests.support.command_line import invoke, run
from tests.support.sample_log import FIRST

# -- verify ----------------------------------------------------------------------------------------------------------


def test_verify_of_damaged_log_names_the_place_and_fails(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    path = data / "orders-0" / f"{FIRST}.index"
    path.write_bytes(b"\x00\x00\x00\x07\x00\x00\x01\x16")

    status, out, _ = run(capsys, "log", "verify", str(data))

    assert status == 1
    assert f"error  {path}, position 0, offset 7: (offset 7, position 278), but the batch there ends" in out
    assert out.splitlines()[-1].startswith("1 partition, 18 records, 851 B: 1 error;")


def test_verify_as_json_is_one_object(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    (data / "orders-0" / f"{FIRST}.txnindex").unlink()

    status, out, _ = run(capsys, "log", "verify", "--json", str(data / "orders-0"))

    report = json.loads(out)
    assert status == 1
    assert (report["sound"], report["in_use"]) == (False, False)
    (partition,) = report["partitions"]
    assert (partition["name"], partition["records"], partition["errors"]) == ("orders-0", 18, 1)
    assert partition["findings"][0]["offset"] == 9


@pytest.mark.usefixtures("broker")
def test_verify_says_that_the_directory_is_in_use(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    status, out, err = run(capsys, "log", "verify", str(data))

    assert status == 0
    assert err == f"{data} is in use: records written during the check may be missed, or seen only in part\n"
    assert out.endswith(": sound\n")


# -- repair ----------------------------------------------------------------------------------------------------------


def snapshot_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def damage(data: Path) -> None:
    path = data / "orders-0" / "00000000000000000010.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    (data / "orders-0" / f"{FIRST}.timeindex").unlink()


def test_dry_run_shows_the_plan_and_changes_nothing(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    damage(data)
    before = snapshot_of(data)

    status, out, _ = run(capsys, "log", "repair", "--dry-run", str(data))

    assert status == 0
    assert snapshot_of(data) == before
    assert "  cut 103 bytes from 00000000000000000010.log at position 297: the checksum does not match\n" in out
    assert "  the offsets from 16 to 17 would be lost\n" not in out, "the bad batch was the last: nothing else is lost"
    assert f"  create   {data}/orders-0/{FIRST}.timeindex  0 B -> " in out
    assert f"  cut      {data}/orders-0/00000000000000000010.log  400 B -> 297 B\n" in out


def test_repair_does_what_the_plan_says_and_leaves_a_sound_log(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    damage(data)

    status, out, _ = run(capsys, "log", "repair", str(data))

    assert status == 0
    assert out.endswith("repaired 1 partition\n")
    assert run(capsys, "log", "verify", str(data))[0] == 0
    assert (data / "recovery-point-offset-checkpoint").read_bytes() == encode_offsets({TopicPartition("orders", 0): 16})
    assert run(capsys, "log", "repair", str(data))[1] == "nothing to repair\n"


def test_repair_of_a_damaged_checkpoint_writes_it_anew(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("0\n3\n")

    assert run(capsys, "log", "repair", str(data))[0] == 0
    assert run(capsys, "log", "verify", str(data))[0] == 0


def test_repair_that_leaves_an_error_fails(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    (data / "meta.properties").write_text("version=9\n")

    status, _, err = run(capsys, "log", "repair", str(data))

    assert status == 1
    assert err == "barnabas: some errors remain; `barnabas log verify` shows where\n"


def test_repair_keeps_the_gaps_of_a_compacted_log(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    for kind in ("log", "index", "timeindex", "txnindex"):
        (data / "orders-0" / f"{FIRST}.{kind}").unlink()
    log = data / "orders-0" / "00000000000000000010.log"
    content = log.read_bytes()
    log.write_bytes(content[:124] + content[297:])
    (data / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 18\n")
    (data / "orders-0" / "00000000000000000010.index").unlink()

    assert run(capsys, "log", "repair", str(data))[0] == 0
    assert invoke("log", "verify", str(data)).exit_code == 0
    assert "batch 16..17 " in invoke("log", "dump", str(log)).stdout


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_repair_refuses_a_directory_in_use(capsys: pytest.CaptureFixture[str], data: Path, options: list[str]) -> None:
    damage(data)
    before = snapshot_of(data)

    status, _, err = run(capsys, "log", "repair", *options, str(data))

    assert status == 1
    assert "is in use by another process" in err
    assert snapshot_of(data) == before


def test_repair_releases_the_lock(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    damage(data)
    run(capsys, "log", "repair", str(data))

    LocalFileSystem().lock(str(data / ".lock")).release()


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (3 << 30, "3.0 GiB")]
)
def test_sizes_are_shown_as_people_say_them(count: int, text: str) -> None:
    assert human_bytes(count) == text


def test_counts_are_shown_with_their_noun() -> None:
    assert [plural(1, "batch"), plural(2, "batch"), plural(3000, "record")] == ["1 batch", "2 batches", "3,000 records"]
