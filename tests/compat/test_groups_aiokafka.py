"""Groups of aiokafka consumers, each a process of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.support.codec_runs import check_codecs
from tests.support.group_scenarios import GROUP_SETTINGS, live_through, make_group, share_work, take_over

BOTH_CODECS = True
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(codecs: str) -> Iterator[Broker]:
    with Broker(GROUP_SETTINGS) as broker:
        yield broker
        check_codecs(broker, codecs)


def test_group_lives_through_kills_pauses_and_leaves(broker: Broker, tmp_path: Path) -> None:
    members, work = make_group(broker, "life", "aiokafka", tmp_path, partitions=6)
    with members:
        live_through(members, work)


def test_one_group_is_a_queue(broker: Broker, tmp_path: Path) -> None:
    members, work = make_group(broker, "queue", "aiokafka", tmp_path, partitions=6, assignor="roundrobin")
    with members:
        share_work(members, work, "klamm", "frieda", "olga")


def test_spare_members_take_over(broker: Broker, tmp_path: Path) -> None:
    members, work = make_group(broker, "spare", "aiokafka", tmp_path, partitions=2)
    with members:
        take_over(members, work)
