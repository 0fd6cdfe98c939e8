"""`barnabas log dump`: what is printed of each kind of file, and of damaged ones."""

import json
from pathlib import Path

import pytest

from barnabas.cli.log.dump_text import bytes_text, time_text
from barnabas.records.batch import Codec
from barnabas.records.builder import BatchBuilder
from tests.support.command_line import invoke, run
from tests.support.sample_log import FIRST, START_MS, open_sample


def test_dump_of_records_is_safe_for_any_bytes(tmp_path: Path) -> None:
    log = open_sample(tmp_path / "orders-0")
    builder = BatchBuilder()
    builder.append(START_MS, b"\x1b[31mred", "\u202egnp.exe".encode(), [("\udcff", b"\x00")])
    builder.append(START_MS, b"", "größe".encode(), [("", None)])
    log.append(memoryview(builder.build()), leader_epoch=0)
    log.close()

    lines = invoke("log", "dump", "--records", str(tmp_path / "orders-0" / f"{FIRST}.log")).stdout.splitlines()

    assert lines[1].endswith(r'key="\u001b[31mred" value="\u202egnp.exe" headers={0xff: "\u0000"}')
    assert lines[2].endswith('key="" value="größe" headers={"": null}')


def test_dump_as_json_gives_every_line_an_object(data: Path) -> None:
    result = invoke("log", "dump", "--json", "--records", str(data / "orders-0" / f"{FIRST}.log"))

    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["type"] for line in lines].count("batch") == 4
    records = [line for line in lines if line["type"] == "record"]
    assert [record["offset"] for record in records] == list(range(10))
    assert records[6]["key"] == {"base64": "/wA="}
    assert records[5]["headers"] == [["reason", "cancelled"], ["trace", None]]
    assert lines[-2]["marker"] == "abort"


def test_dump_begins_and_ends_where_it_is_told(data: Path) -> None:
    path = str(data / "orders-0" / f"{FIRST}.log")

    assert invoke("log", "dump", "--from", "8", "-n", "1", path).stdout.startswith("batch 7..8 ")
    records = invoke("log", "dump", "--records", "--from", "3", "-n", "3", path).stdout.splitlines()
    assert [line.split()[:2] for line in records] == [
        ["batch", "0..3"],
        ["record", "3"],
        ["batch", "4..6"],
        ["record", "4"],
        ["record", "5"],
    ]


@pytest.mark.parametrize(
    ("name", "first_line"),
    [
        (f"orders-0/{FIRST}.index", "offset=8 position=278"),
        (f"orders-0/{FIRST}.timeindex", "timestamp=2023-11-14T22:13:21.001Z offset=8"),
        (f"orders-0/{FIRST}.txnindex", "producer_id=7 first_offset=7 last_offset=9 last_stable_offset=10"),
        ("orders-0/leader-epoch-checkpoint", "epoch=0 start_offset=0"),
        ("orders-0/partition.metadata", "topic_id=AAAAAAAAAAAAAAAAAAAHWw"),
        ("recovery-point-offset-checkpoint", "topic=orders partition=0 offset=18"),
        ("meta.properties", "cluster_id=castle node_id=1 directory_id=AAAAAAAAAAAAAAAAAAAHhg"),
        (".kafka_cleanshutdown", "broker_epoch=-1"),
    ],
)
def test_dump_knows_every_file(data: Path, name: str, first_line: str) -> None:
    result = invoke("log", "dump", str(data / name))

    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == first_line


@pytest.mark.parametrize("suffix", [".deleted", ".cleaned", ".swap"])
def test_dump_reads_files_with_a_suffix(data: Path, suffix: str) -> None:
    path = data / "orders-0" / f"{FIRST}.index"
    path.rename(f"{path}{suffix}")

    assert invoke("log", "dump", f"{path}{suffix}").stdout == "offset=8 position=278\n"


def test_dump_reads_compressed_records(tmp_path: Path) -> None:
    log = open_sample(tmp_path / "orders-0")
    builder = BatchBuilder(codec=Codec.ZSTD)
    builder.append(START_MS, b"k", b"v")
    log.append(memoryview(builder.build()), leader_epoch=0)
    log.close()

    out = invoke("log", "dump", "--records", str(tmp_path / "orders-0" / f"{FIRST}.log")).stdout

    assert " codec=zstd " in out
    assert 'key="k" value="v"' in out


def test_dump_of_damaged_log_ends_at_the_damage(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    path = data / "orders-0" / f"{FIRST}.log"
    content = bytearray(path.read_bytes())
    content[250] ^= 1
    path.write_bytes(content)

    status, out, err = run(capsys, "log", "dump", str(path), str(data / "meta.properties"))

    assert status == 1
    assert out.splitlines()[1].startswith("batch 0..3 ")
    assert err == f"barnabas: {path}, position 141: the checksum does not match\n"
    assert "cluster_id=castle" in out, "the other files are still dumped"


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        (f"{FIRST}.index", b"\x00\x00\x00\x01\x00\x00\x00\x02" * 2, "position 8: (1, 2) does not come after (1, 2)"),
        (f"{FIRST}.index", b"\x00\x00\x00\x01\x00\x00\x00\x02\x00", "position 8: 1 bytes after the last entry"),
        (f"{FIRST}.txnindex", b"\x00" * 33, "33 bytes are not whole entries of 34"),
        (f"{FIRST}.snapshot", b"\x00", "1 bytes, less than a header"),
        ("leader-epoch-checkpoint", b"0\n1\n", "line 2: 1 entries announced, but there are 0"),
        ("some.index", b"", "give the file its original name"),
        ("notes.txt", b"", "does not have the name of a log file"),
    ],
)
def test_dump_of_what_cannot_be_read_says_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    (tmp_path / name).write_bytes(content)

    status, _, err = run(capsys, "log", "dump", str(tmp_path / name))

    assert status == 1
    assert complaint in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [(-1, "none"), (0, "1970-01-01T00:00:00.000Z"), (2**62, str(2**62)), (-(2**62), str(-(2**62)))],
)
def test_time_is_shown_whatever_it_is(timestamp: int, text: str) -> None:
    assert time_text(timestamp) == text


def test_bytes_are_shown_as_text_only_when_they_are() -> None:
    assert [bytes_text(content) for content in (None, b"", b"a\nb", b"\xff")] == ["null", '""', '"a\\nb"', "0xff"]
