"""The groups of a broker: their topic, their coordinator, and who may list, describe and delete them."""

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from barnabas.broker.authorizer import Operation, Resource
from barnabas.broker.caller import Caller
from barnabas.groups.history import HISTORY_TOPIC, decode_history
from barnabas.metadata.table import MemoryTable
from barnabas.records.reader import read_records
from barnabas.wire.apis import APIS, ApiKey
from tests.support.broker_parts import ServedBroker, served_broker
from tests.support.group_requests import ONE, beat, commit, committed, find, join, one_offset, sync, until
from tests.support.network import run

# -- the topic -----------------------------------------------------------------------------------------------------


def test_first_question_makes_the_offsets_topic_as_kafka_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            assert "__consumer_offsets" not in broker.broker.services.image.topics
            found = await find(broker)
            assert (found.error_code, found.node_id) == (ErrorCode.none, 1)

            image = broker.broker.services.image
            topic = image.topics["__consumer_offsets"]
            assert topic.is_internal
            assert len(topic.partitions) == 4
            configs = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
            assert image.configs_of_topic("__consumer_offsets") == configs

    run(scenario())


def test_offsets_topic_is_not_made_with_too_few_brokers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            found = await find(broker)
            assert found.error_code is ErrorCode.coordinator_not_available
            assert broker.broker.services.image.topics == {}
            joined = await join(broker)
            assert joined.error_code is ErrorCode.not_coordinator

    run(scenario())


@pytest.mark.parametrize("version", range(APIS[ApiKey.FIND_COORDINATOR].version_max + 1))
def test_coordinator_is_found_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            answer = await broker.ask(
                ApiKey.FIND_COORDINATOR, version, key="g", key_type=0, coordinator_keys=["g", "other"]
            )
            found = answer.coordinators if version >= 4 else [answer]
            port = broker.broker.listeners[0].advertised_port
            assert {(one.error_code, one.node_id, one.port) for one in found} == {(ErrorCode.none, 1, port)}

    run(scenario())


# -- groups --------------------------------------------------------------------------------------------------------


def test_groups_are_listed_described_and_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await broker.create("orders")
            await find(broker)
            await sync(broker, await join(broker))
            await commit(broker, one_offset(1), group_id="simple")

            listed = await broker.ask(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=[])
            shown = {(one.group_id, one.group_state, one.group_type) for one in listed.groups}
            assert shown == {("g", "Stable", "classic"), ("simple", "Empty", "classic")}
            stable = await broker.ask(ApiKey.LIST_GROUPS, 4, states_filter=["stable"])
            assert [one.group_id for one in stable.groups] == ["g"]

            wanted = {"groups": ["g", "nobody"], "include_authorized_operations": True}
            described = await broker.ask(ApiKey.DESCRIBE_GROUPS, 6, **wanted)
            known, unknown = described.groups
            assert (known.protocol_type, known.protocol_data) == ("consumer", "range")
            assert [one.member_assignment for one in known.members] == [b"all"]
            assert (unknown.error_code, unknown.group_state) == (ErrorCode.group_id_not_found, "Dead")

            deleted = await broker.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g", "simple", "nobody"])
            codes = {one.group_id: one.error_code for one in deleted.results}
            assert codes == {
                "g": ErrorCode.non_empty_group,
                "simple": ErrorCode.none,
                "nobody": ErrorCode.group_id_not_found,
            }

    run(scenario())


def test_restart_keeps_offsets_members_and_their_story(tmp_path: Path) -> None:
    async def scenario() -> None:
        table = MemoryTable()
        async with served_broker(tmp_path, table=table, **ONE) as broker:
            await broker.create("orders")
            await find(broker)
            joined = await join(broker)
            await sync(broker, joined)
            await commit(broker, one_offset(7), generation_id_or_member_epoch=1, member_id=joined.member_id)
            await broker.broker.replicas.wait_for(lambda image: HISTORY_TOPIC in image.topics)
            await until(broker, HISTORY_TOPIC, lambda: len(read_story(broker)) == 1)
        async with served_broker(tmp_path, table=table, **ONE) as broker:
            await broker.broker.groups.coordinator.wait_loaded()
            assert await committed(broker) == (7, "note")
            assert await beat(broker, joined) is ErrorCode.none
            await broker.ask(ApiKey.LEAVE_GROUP, 4, group_id="g", members=[{"member_id": joined.member_id}])
            await until(broker, HISTORY_TOPIC, lambda: len(read_story(broker)) == 2)
            assert [one.generation_after for one in read_story(broker)] == [1, 2]

    run(scenario())


def read_story(broker: ServedBroker) -> list[Any]:
    log = broker.log(HISTORY_TOPIC)
    found = log.read(max(log.log_start_offset, log.end_offset - 1), 1 << 20).slice
    if found is None:
        return []
    try:
        *_, last = read_records(found.read())
    finally:
        found.release()
    assert last.value is not None
    return list(decode_history(last.value).entries)


# -- who may -------------------------------------------------------------------------------------------------------


class Rights:
    """Nobody may do anything with these."""

    allows_all = False

    def __init__(self) -> None:
        self.denied: frozenset[Resource] = frozenset()

    def allows(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        return resource not in self.denied


def test_who_may_not_is_refused_by_every_api(tmp_path: Path) -> None:
    async def scenario() -> None:
        rights = Rights()
        async with served_broker(tmp_path, authorizer=rights, **ONE) as broker:
            await broker.create("orders")
            await find(broker)
            joined = await join(broker)
            await commit(broker, one_offset(1), group_id="simple")
            rights.denied = frozenset(Resource)
            denied = ErrorCode.group_authorization_failed
            assert (await find(broker)).error_code is denied
            assert (await join(broker)).error_code is denied
            assert (await sync(broker, joined)).error_code is denied
            assert await beat(broker, joined) is denied
            assert (await commit(broker, one_offset(1))).topics[0].partitions[0].error_code is denied
            fetched = await broker.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=None, require_stable=False)
            assert fetched.error_code is denied
            left = await broker.ask(ApiKey.LEAVE_GROUP, 4, group_id="g", members=[{"member_id": "m"}])
            assert left.error_code is denied
            wanted = {"groups": ["g"], "include_authorized_operations": False}
            assert (await broker.ask(ApiKey.DESCRIBE_GROUPS, 5, **wanted)).groups[0].error_code is denied
            deleted = await broker.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g"])
            assert deleted.results[0].error_code is denied
            assert (await broker.ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=[])).error_code is denied
            assert (await broker.ask(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=[])).groups == ()

            rights.denied = frozenset({Resource.TOPIC})
            answer = await commit(broker, one_offset(1), group_id="simple")
            assert answer.topics[0].partitions[0].error_code is ErrorCode.topic_authorization_failed
            everything = await broker.ask(ApiKey.OFFSET_FETCH, 7, group_id="simple", topics=None, require_stable=False)
            assert everything.topics == ()

    run(scenario())
