"""Groups of kafka-python consumers, each a process of its own.

Groups of three and more that come at once are left to the other clients: kafka-python 3.0.12 now and then stops after
an answered SyncGroup then, with Apache Kafka as well.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.support.codec_runs import check_codecs
from tests.support.group_scenarios import GROUP_SETTINGS, live_through, make_group, share_work

BOTH_CODECS = True
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(codecs: str) -> Iterator[Broker]:
    with Broker(GROUP_SETTINGS) as broker:
        yield broker
        check_codecs(broker, codecs)


def test_group_lives_through_kills_pauses_and_leaves(broker: Broker, tmp_path: Path) -> None:
    members, work = make_group(broker, "life", "kafka-python", tmp_path, partitions=6)
    with members:
        live_through(members, work)


def test_cooperative_group_is_a_queue(broker: Broker, tmp_path: Path) -> None:
    members, work = make_group(
        broker, "cooperative", "kafka-python", tmp_path, partitions=4, assignor="cooperative-sticky"
    )
    with members:
        share_work(members, work, "klamm", "frieda")
