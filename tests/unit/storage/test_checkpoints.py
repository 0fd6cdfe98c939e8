import random
from contextlib import suppress
from uuid import UUID

import pytest

from barnabas.base.filesystem import LocalFileSystem
from barnabas.base.ids import TopicPartition
from barnabas.base.uuid import new_uuid, parse_uuid, uuid_text
from barnabas.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    PARTITION_METADATA,
    CleanShutdown,
    CorruptCheckpoint,
    decode_clean_shutdown,
    decode_leader_epochs,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_leader_epochs,
    encode_offsets,
    encode_partition_metadata,
    read_clean_shutdown,
    read_leader_epochs,
    read_offsets,
    read_partition_metadata,
    write_clean_shutdown,
    write_leader_epochs,
    write_offsets,
    write_partition_metadata,
)
from barnabas.storage.directories.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
    read_meta_properties,
    write_meta_properties,
)
from barnabas.storage.log.epochs import EpochEntry

FILES = LocalFileSystem()
TOPIC_ID = UUID("6b56a334-7541-4996-8873-fa39b3dfd793")
TOPIC_ID_TEXT = "a1ajNHVBSZaIc_o5s9_Xkw"
OFFSETS = {
    TopicPartition("orders", 10): 2**63 - 1,
    TopicPartition("orders", 2): 4711,
    TopicPartition("__consumer_offsets", 0): 0,
}


def test_offsets_are_written_as_kafka_writes_them():
    assert encode_offsets(OFFSETS) == (
        b"0\n4\n__consumer_offsets 0 0\norders 2 4711\norders 10 9223372036854775807\n"
        b"__barnabas_checksum 0 3588689846\n"
    )
    assert encode_offsets({}) == b"0\n0\n"


def test_offsets_without_a_checksum_are_kafkas():
    assert decode_offsets(b"0\n1\norders 2 4711\n", "file") == ({TopicPartition("orders", 2): 4711}, False)
    assert decode_offsets(encode_offsets(OFFSETS), "file") == (OFFSETS, True)


def test_flipped_bit_of_offsets_is_found_or_changes_nothing():
    whole = encode_offsets(OFFSETS)
    for bit in range(8 * len(whole)):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        with suppress(CorruptCheckpoint):
            offsets = decode_offsets(bytes(content), "file").offsets
            assert {partition: offsets.get(partition) for partition in OFFSETS} == OFFSETS


def test_offsets_round_trip(tmp_path):
    path = str(tmp_path / HIGH_WATERMARKS)
    assert read_offsets(FILES, path) == {}
    write_offsets(FILES, path, OFFSETS)
    assert read_offsets(FILES, path) == OFFSETS


@pytest.mark.parametrize("content", [b"", b"0\n", b"0\n0\n", b"0\n0"])
def test_offsets_of_a_young_directory_are_none(content):
    assert decode_offsets(content, "file") == ({}, False)


def test_offsets_of_a_topic_given_twice_are_the_last():
    assert decode_offsets(b"0\n2\na 0 1\na 0 2\n", "file").offsets == {TopicPartition("a", 0): 2}


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (b"1\n0\n", 1, "version 1"),
        (b"x\n0\n", 1, "'x'"),
        (b"0\nmany\n", 2, "'many'"),
        (b"0\n-1\n", 2, "'-1'"),
        (b"0\n2\na 0 1\n", 2, "2 entries announced, but there are 1"),
        (b"0\n1\na 0 1\nb 0 1\n", 2, "1 entries announced, but there are 2"),
        (b"0\n1\na 0\n", 3, "topic partition offset"),
        (b"0\n2\na 0 1\n\n", 4, "topic partition offset"),
        (b"0\n1\na 0 1 2\n", 3, "topic partition offset"),
        (b"0\n1\na 0 -1\n", 3, "'-1'"),
        (b"0\n1\na 0 1_0\n", 3, "'1_0'"),
        ("0\n1\na 0 \u0661\n".encode(), 3, "\u0661"),
        (b"0\n1\na 2147483648 1\n", 3, "2147483647"),
        (b"0\n1\na 0 9223372036854775808\n", 3, "9223372036854775807"),
        (b"0\n1\n\xff 0 1\n", 3, "0xff is not UTF-8"),
        (b"\0\0\0\0\0\0", 1, "not a number"),
    ],
)
def test_damaged_offsets_are_refused_with_file_and_line(content, line, problem):
    with pytest.raises(CorruptCheckpoint, match=f"^some/file, line {line}: ") as raised:
        decode_offsets(content, "some/file")
    assert problem in raised.value.problem
    assert (raised.value.path, raised.value.line) == ("some/file", line)


def test_leader_epochs_are_written_as_kafka_writes_them(tmp_path):
    entries = [EpochEntry(0, 0), EpochEntry(2, 127)]
    assert encode_leader_epochs(entries) == b"0\n2\n0 0\n2 127\n"
    path = str(tmp_path / LEADER_EPOCHS)
    assert read_leader_epochs(FILES, path) == []
    write_leader_epochs(FILES, path, entries)
    assert read_leader_epochs(FILES, path) == entries


@pytest.mark.parametrize("line", [b"0", b"0 0 0", b"-1 0", b"0 -1", b"a 0"])
def test_damaged_leader_epochs_are_refused(line):
    with pytest.raises(CorruptCheckpoint, match="line 3"):
        decode_leader_epochs(b"0\n1\n" + line + b"\n", "file")


def test_partition_metadata_is_written_as_kafka_writes_it(tmp_path):
    assert encode_partition_metadata(TOPIC_ID) == f"version: 0\ntopic_id: {TOPIC_ID_TEXT}".encode()
    path = str(tmp_path / PARTITION_METADATA)
    assert read_partition_metadata(FILES, path) is None
    write_partition_metadata(FILES, path, TOPIC_ID)
    assert read_partition_metadata(FILES, path) == TOPIC_ID


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", None),
        (b"version: 0\n", None),
        (b"version: x\ntopic_id: a1ajNHVBSZaIc_o5s9_Xkw", 1),
        (b"version 0\ntopic_id: a1ajNHVBSZaIc_o5s9_Xkw", 1),
        (b"version: 0\ntopic: a1ajNHVBSZaIc_o5s9_Xkw", 2),
        (b"version: 0\ntopic_id: a1ajNHVBSZaIc", 2),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2),
        (b"version: 0\ntopic_id: \xff", 2),
    ],
)
def test_damaged_partition_metadata_is_refused(content, line):
    with pytest.raises(CorruptCheckpoint) as raised:
        decode_partition_metadata(content, "file")
    assert raised.value.line == line


def test_clean_shutdown_is_written_as_kafka_writes_it(tmp_path):
    assert encode_clean_shutdown(CleanShutdown(11)) == b'{"version":0,"brokerEpoch":11}'
    path = str(tmp_path / CLEAN_SHUTDOWN)
    assert read_clean_shutdown(FILES, path) is None
    write_clean_shutdown(FILES, path, CleanShutdown(11))
    assert read_clean_shutdown(FILES, path) == CleanShutdown(11)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"brokerEpoch":"x"}', b"\xff\xfe", b'{"version":0,"bro'])
def test_clean_shutdown_with_unknown_content_still_counts(content):
    assert decode_clean_shutdown(content) == CleanShutdown()


def test_meta_properties_round_trip(tmp_path):
    path = str(tmp_path / META_PROPERTIES)
    meta = MetaProperties("Gpp_zmRqRwCNxdP9NDOq9Q", 1, TOPIC_ID)
    assert read_meta_properties(FILES, path) is None
    write_meta_properties(FILES, path, meta)
    assert read_meta_properties(FILES, path) == meta
    assert encode_meta_properties(meta).decode().splitlines() == [
        "version=1",
        "cluster.id=Gpp_zmRqRwCNxdP9NDOq9Q",
        "node.id=1",
        f"directory.id={TOPIC_ID_TEXT}",
    ]


def test_meta_properties_of_kafka_are_read():
    content = (
        b"#\n#Sun Nov 15 21:46:09 UTC 2026\nnode.id=1\ndirectory.id=r_YEA9_QVRnKGIr_OxCs9w\n"
        b"version=1\ncluster.id=Gpp_zmRqRwCNxdP9NDOq9Q\n"
    )
    assert decode_meta_properties(content, "file") == MetaProperties(
        "Gpp_zmRqRwCNxdP9NDOq9Q", 1, parse_uuid("r_YEA9_QVRnKGIr_OxCs9w")
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"version=0\nbroker.id=7\ncluster.id=abc\n", MetaProperties("abc", 7, None)),
        (b"broker.id=7\n", MetaProperties(None, 7, None)),
        (b"", MetaProperties(None, None, None)),
    ],
)
def test_meta_properties_of_version_zero_are_accepted(content, expected):
    assert decode_meta_properties(content, "file") == expected


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"version=2\nnode.id=1\ncluster.id=a\n", "version '2'"),
        (b"version=1\ncluster.id=a\n", "node.id is missing"),
        (b"version=1\nnode.id=1\n", "cluster.id is missing"),
        (b"version=1\nnode.id=one\ncluster.id=a\n", "'one'"),
        (b"version=1\nnode.id=4294967296\ncluster.id=a\n", "32-bit"),
        (b"version=1\nnode.id=1\ncluster.id=a\ndirectory.id=short\n", "directory.id"),
        (b"version=\\u12\n", "line 1"),
    ],
)
def test_damaged_meta_properties_are_refused(content, problem):
    with pytest.raises(CorruptCheckpoint, match=problem):
        decode_meta_properties(content, "file")


def test_identifier_text_is_kafkas():
    assert uuid_text(TOPIC_ID) == TOPIC_ID_TEXT
    assert parse_uuid(TOPIC_ID_TEXT) == TOPIC_ID
    assert parse_uuid(TOPIC_ID_TEXT + "==") == TOPIC_ID


@pytest.mark.parametrize("text", ["", "a1ajNHVBSZaIc_o5s9_Xk", "a1ajNHVBSZaIc_o5s9_Xkww", "a1ajNHVBSZaIc+o5s9/Xkw"])
def test_other_text_is_no_identifier(text):
    with pytest.raises(ValueError, match="22 characters"):
        parse_uuid(text)


def test_new_identifiers_differ_and_never_look_like_an_option():
    source = random.Random(1)
    identifiers = [new_uuid(source) for _ in range(500)]
    assert len(set(identifiers)) == 500
    assert not any(uuid_text(identifier).startswith("-") for identifier in identifiers)
