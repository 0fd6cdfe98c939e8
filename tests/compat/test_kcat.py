"""kcat against Barnabas: the Debian package, whose librdkafka is an old one."""

import json
import shutil
import subprocess

import pytest

from barnabas.testing import Broker

BOTH_CODECS = True

TIMEOUT_SECONDS = 180

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (Debian package kcat)")


def kcat(broker: Broker, *arguments: str, standard_input: bytes = b"") -> str:
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap, *arguments],
        input=standard_input,
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_compresses_as_it_was_told(barnabas_broker: Broker, codec: str) -> None:
    """An old librdkafka sends plain records, without a word, to a broker that does not seem to know the codec."""
    lines = "".join(f"key-{number}:value {number} {'x' * 50}\n" for number in range(100))
    arguments = ["-P", "-t", "orders", "-K:", "-z", codec, "-H", "source=kcat", "-X", "linger.ms=50"]
    kcat(barnabas_broker, *arguments, standard_input=lines.encode())

    records = barnabas_broker.records("orders")
    assert {record.compression for record in records} == {codec}
    assert (records[0].key, records[0].headers) == (b"key-0", (("source", b"kcat"),))
    assert len(records) == 100

    consumed = kcat(barnabas_broker, "-C", "-t", "orders", "-p", "0", "-o", "beginning", "-e", "-q", "-K:")
    assert consumed == lines


def test_kcat_consumes_from_an_offset_and_a_time(barnabas_broker: Broker) -> None:
    barnabas_broker.create_topic("orders", configs={"retention.ms": -1})
    for number in range(5):
        barnabas_broker.append("orders", [b"%d" % number], timestamp_ms=1_000 + number * 100)

    read = ["-C", "-t", "orders", "-p", "0", "-e", "-q"]
    assert kcat(barnabas_broker, *read, "-o", "3").split() == ["3", "4"]
    assert kcat(barnabas_broker, *read, "-o", "-1").split() == ["4"]
    assert kcat(barnabas_broker, *read, "-o", "s@1150").split() == ["2", "3", "4"]
    assert kcat(barnabas_broker, "-Q", "-t", "orders:0:1150").strip() == "orders [0] offset 2"


def test_kcat_lists_brokers_and_topics(barnabas_broker: Broker) -> None:
    barnabas_broker.create_topic("orders", partitions=3)

    listed = json.loads(kcat(barnabas_broker, "-L", "-J"))

    assert [broker["name"] for broker in listed["brokers"]] == [barnabas_broker.bootstrap]
    (topic,) = listed["topics"]
    assert (topic["topic"], [one["leader"] for one in topic["partitions"]]) == ("orders", [1, 1, 1])
