"""The examples of docs/cluster.md give what the page says, on three brokers with the defaults of `up --brokers 3`.

`kill` kills the leader of the first topic of the page. Ids differ from run to run and are not compared; brokers are, by
their place among the replicas of a partition.
"""

import re
from pathlib import Path

from confluent_kafka.admin import AdminClient

from barnabas.cli.local_cluster.cluster_directory import common_texts
from barnabas.testing import Cluster
from tests.support.command_line import run_line
from tests.support.kafka import wait_until
from tests.unit.project.test_docs_commands import CONSOLE, fill_lines, without_what_changes

PAGE = Path(__file__).resolve().parents[3] / "docs" / "cluster.md"
PARTITION = re.compile(r"^ +\d+ +(\d) +((?:\d,)+\d) +([\d,]+)( +[\d,]+)?(?= +\d+ +\d+ +\d+ B$)", re.MULTILINE)


def by_place(row: re.Match[str]) -> str:
    """The brokers of a partition by their place among its replicas: the first one is a."""
    leader, replicas, in_sync, eligible = row.groups(default="")
    names = dict(zip(replicas.split(","), "abc", strict=True))
    shown = [[names[one] for one in found.strip().split(",") if one] for found in (leader, in_sync, eligible)]
    return f"leader {shown[0]}, in sync {sorted(shown[1])}, eligible {shown[2]}"


def comparable(page: str) -> str:
    return without_what_changes(PARTITION.sub(by_place, page))


def test_examples_in_cluster_page_give_what_the_page_says() -> None:
    page = PAGE.read_text()
    texts = common_texts({}, None, "unused:2181", brokers=3)
    del texts["zookeeper.connect"]
    with Cluster(3, texts) as cluster:

        def run(line: str) -> str:
            if not line.startswith("kill -9 "):
                return run_line(line, cluster.bootstrap)
            leader = cluster.leader_of("orders")
            assert leader is not None
            leader.kill()
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
            wait_until(lambda: leader.id not in admin.list_topics(timeout=60).brokers, "a list without it", 60)
            return ""

        filled = fill_lines(page, run)

    assert len(CONSOLE.findall(page)) == 4
    assert comparable(filled) == comparable(page)
