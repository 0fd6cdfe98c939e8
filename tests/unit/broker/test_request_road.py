"""The road of a request: order on a connection, the gate, and the counters of the codecs."""

from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.caller import Caller
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.codecs import COMPILED, REFERENCE, Codecs, Declined
from barnabas.wire.errors import MalformedRequest
from tests.support.broker_parts import ServedBroker, served_broker
from tests.support.kernels import build_batch
from tests.support.network import run

CODECS = [pytest.param(codecs, id=codecs.name) for codecs in (COMPILED, REFERENCE) if codecs is not None]
GROUPS = {"offsets_topic_replication_factor": "1", "offsets_topic_num_partitions": "1"}
PRODUCE, FETCH, COMMIT = 12, 12, 9
MANY = 600


def produce_of(*partitions: int, topic: str = "orders") -> dict[str, Any]:
    records = bytes(build_batch(1))
    batches = [{"index": index, "records": records} for index in partitions]
    topics = [{"name": topic, "partition_data": batches}]
    return {"transactional_id": None, "acks": -1, "timeout_ms": 1000, "topic_data": topics}


def commit_of(offset: int, *partitions: int) -> dict[str, Any]:
    offsets = [{"partition_index": one, "committed_offset": offset, "committed_metadata": ""} for one in partitions]
    member = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    return {**member, "topics": [{"name": "orders", "partitions": offsets}]}


def fetch_of(**changes: Any) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "log_start_offset": -1, "partition_max_bytes": 1 << 20}
    partition |= {"current_leader_epoch": -1, "last_fetched_epoch": -1}
    asked: dict[str, Any] = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20}
    asked |= {"isolation_level": 0, "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
    return {**asked, "topics": [{"topic": "orders", "partitions": [partition]}], **changes}


async def committed(broker: ServedBroker, partition: int) -> int:
    topics = [{"name": "orders", "partition_indexes": [partition]}]
    answer = await broker.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=topics, require_stable=False)
    return answer.topics[0].partitions[0].committed_offset  # type: ignore[no-any-return]


# -- order -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codecs", CODECS)
def test_long_produce_is_appended_before_what_follows_it_on_its_connection(tmp_path: Path, codecs: Codecs) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, codecs=codecs) as broker:
            await broker.create("orders")
            client = broker.connect()
            unknown = range(1, MANY)
            long = client.send(ApiKey.PRODUCE, PRODUCE, produce_of(*unknown, 0))
            short = client.send(ApiKey.PRODUCE, PRODUCE, produce_of(0))
            (told,) = (await long).responses
            assert [one.error_code.value for one in told.partition_responses] == [3] * len(unknown) + [0]
            assert told.partition_responses[-1].base_offset == 0
            assert (await short).responses[0].partition_responses[0].base_offset == 1

    run(scenario())


@pytest.mark.parametrize("codecs", CODECS)
def test_long_commit_does_not_undo_what_follows_it_on_its_connection(tmp_path: Path, codecs: Codecs) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, codecs=codecs, **GROUPS) as broker:
            await broker.create("orders", MANY)
            await broker.find_coordinator()
            client = broker.connect()
            long = client.send(ApiKey.OFFSET_COMMIT, COMMIT, commit_of(5, *range(MANY)))
            short = client.send(ApiKey.OFFSET_COMMIT, COMMIT, commit_of(9, MANY - 1))
            (told,) = (await long).topics
            assert [one.partition_index for one in told.partitions] == list(range(MANY))
            assert {one.error_code.value for one in (*told.partitions, *(await short).topics[0].partitions)} == {0}
            assert [await committed(broker, one) for one in (0, MANY - 1)] == [5, 9]

    run(scenario())


def test_request_behind_a_long_one_that_cannot_be_read_closes_the_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            client = broker.connect()
            long = client.send(ApiKey.PRODUCE, PRODUCE, produce_of(*range(MANY)))
            malformed = client.send_frame(bytearray(b"\x00\x00\x00\x09\x00\x03\x7f\xff\x00\x00\x00\x01\x00"))
            behind = client.send(ApiKey.PRODUCE, PRODUCE, produce_of(0))
            assert await long
            assert (await behind).responses[0].partition_responses[0].base_offset == 1
            with pytest.raises(MalformedRequest):
                await malformed

    run(scenario())


# -- the gate ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codecs", CODECS)
def test_throttle_is_asked_by_caller_and_api_and_told_in_every_answer(tmp_path: Path, codecs: Codecs) -> None:
    async def scenario() -> None:
        asked: list[tuple[Caller, ApiKey]] = []

        def throttle(caller: Caller, api_key: ApiKey) -> int:
            asked.append((caller, api_key))
            return 77

        async with served_broker(tmp_path, codecs=codecs, **GROUPS) as broker:
            await broker.create("orders")
            await broker.find_coordinator()
            broker.broker.dispatcher.throttle = throttle
            requests = {
                ApiKey.PRODUCE: (PRODUCE, produce_of(0)),
                ApiKey.FETCH: (FETCH, fetch_of()),
                ApiKey.OFFSET_COMMIT: (COMMIT, commit_of(1, 0)),
                ApiKey.METADATA: (12, {"topics": []}),
                ApiKey.CREATE_TOPICS: (7, {"topics": [], "timeout_ms": 0, "validate_only": False}),  # refused at once
                ApiKey.INIT_PRODUCER_ID: (4, {"transactional_id": "", "transaction_timeout_ms": 1}),  # refused, too
            }
            for key, (version, values) in requests.items():
                answer = await broker.ask(key, version, **values)
                assert answer.throttle_time.total_seconds() == 0.077, key
            assert [key for _, key in asked] == list(requests)
            assert {caller.client_id for caller, _ in asked} == {"test"}

    run(scenario())


def test_caller_tells_its_software_after_it_has_said_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            client = broker.connect()
            assert client.caller == Caller("PLAINTEXT", "127.0.0.1")
            software = {"client_software_name": "librdkafka", "client_software_version": "2.11.0"}
            await client.send(ApiKey.API_VERSIONS, 3, software)
            assert (client.caller.software, client.caller.client_id) == ("librdkafka/2.11.0", "test")

    run(scenario())


# -- the codecs --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(COMPILED is None, reason="there was no compiler")
def test_counters_say_which_codec_read_and_why_the_compiled_one_declined(tmp_path: Path) -> None:
    async def scenario() -> None:
        assert COMPILED is not None
        async with served_broker(tmp_path, codecs=COMPILED) as broker:
            await broker.create("orders")
            route = broker.broker.dispatcher.routes[ApiKey.FETCH]
            await broker.ask(ApiKey.FETCH, FETCH, **fetch_of())
            assert (route.compiled.value, route.reference.value) == (1, 0)
            await broker.ask(ApiKey.FETCH, APIS[ApiKey.FETCH].version_min, **fetch_of())
            forgotten = [{"topic": "orders", "partitions": [1]}]
            await broker.ask(ApiKey.FETCH, FETCH, **fetch_of(forgotten_topics_data=forgotten))
            assert (route.compiled.value, route.reference.value) == (1, 2)
            declined = {reason: route.declined[reason].value for reason in Declined}
            assert declined == {**dict.fromkeys(Declined, 0), Declined.VERSION: 1, Declined.FIELD: 1}

    run(scenario())
