"""The time of a Fetch is two figures: how long it waited for records, and how long the broker worked on it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.handlers import fetch as fetch_module
from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import served_broker
from tests.support.frame_client import Client, connected, fetch_of, produce_of
from tests.support.network import read_frame, run, until

WAIT_SECONDS = 0.05


def fetch_from(version: int, *topics: str) -> tuple[ApiKey, int, dict[str, Any]]:
    """At the end of each topic, for a wait that no test sees the end of."""
    api_key, _, asked = fetch_of(topics[0], wait_ms=60_000)
    asked["topics"] = [{**asked["topics"][0], "topic": topic} for topic in topics]
    return api_key, version, asked


ROADS = {
    "one partition": (12, ["orders"], None),
    "an old version": (4, ["orders"], None),
    "two partitions": (12, ["orders", "events"], None),
    "very many partitions": (12, ["orders", "events"], 1),
}


@pytest.mark.parametrize(("version", "topics", "wide_partitions"), ROADS.values(), ids=ROADS)
@pytest.mark.parametrize("has_news", [True, False], ids=["records come", "the time is over"])
def test_wait_for_records_is_measured_apart_from_the_work(
    version: int,
    topics: list[str],
    wide_partitions: int | None,
    has_news: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if wide_partitions is not None:
        monkeypatch.setattr(fetch_module, "WIDE_PARTITIONS", wide_partitions)

    async def scenario() -> None:
        async with served_broker(tmp_path) as served:
            for topic in ("orders", "events"):
                await served.create(topic)
            measures = served.broker.dispatcher.measures
            work, wait = measures.seconds[ApiKey.FETCH], measures.fetch_wait_seconds
            partition = served.partition("orders")
            async with connected(served) as reader, connected(served) as writer:
                asked = fetch_from(version, *topics)
                if not has_news:
                    asked[2]["max_wait_ms"] = round(WAIT_SECONDS * 1000)
                reader.send(*asked)
                await until(lambda: bool(partition.watchers))
                assert (sum(work.counts), sum(wait.counts)) == (0, 0)
                if has_news:
                    await asyncio.sleep(WAIT_SECONDS)
                    await writer.ask(*produce_of("orders"))
                await read_frame(reader.reader)
                await until(lambda: sum(work.counts) == 1)
                assert sum(wait.counts) == 1
                assert wait.sum >= 0.8 * WAIT_SECONDS
                assert 0 < work.sum < 0.5 * WAIT_SECONDS

                await _fetch_what_is_there(reader, version, topics, has_news=has_news)
                assert (sum(work.counts), sum(wait.counts)) == (2, 1)

    run(scenario())


async def _fetch_what_is_there(reader: Client, version: int, topics: list[str], *, has_news: bool) -> None:
    """Without a wait: either there are records, or it asks for none."""
    asked = fetch_from(version, *topics)
    if not has_news:
        asked[2]["max_wait_ms"] = 0
    await reader.ask(*asked)
