"""Where records go. The hashes are those of org.apache.kafka.common.utils.Utils.murmur2."""

import random

import pytest

from barnabas.client.producing.partitioner import StickyChoice, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_the_java_client(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


def test_key_of_negative_hash_has_a_partition() -> None:
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7


def test_sticky_choice_stays_until_it_moves_on_and_reaches_every_partition() -> None:
    sticky = StickyChoice(random.Random(5))
    assert sticky.current("orders") is None
    seen = {sticky.move_on("orders", [0, 1, 2])}
    for _ in range(30):
        before = sticky.current("orders")
        assert sticky.current("orders") == before
        after = sticky.move_on("orders", [0, 1, 2])
        assert after != before
        seen.add(after)
    assert seen == {0, 1, 2}


def test_sticky_choice_of_one_partition_stays_there() -> None:
    sticky = StickyChoice(random.Random(5))
    assert [sticky.move_on("orders", [4]) for _ in range(3)] == [4, 4, 4]
