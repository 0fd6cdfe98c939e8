"""The testing broker goes wrong where a test wants that: refused, lost, dropped and delayed requests."""

import asyncio

import pytest

from barnabas.client.blocking import BlockingClient
from barnabas.client.producing.producer import ProducerOptions
from barnabas.testing import ApiKey, Broker, ErrorCode
from barnabas.wire.apis import APIS
from barnabas.wire.errors import KafkaError
from tests.support.testing_broker import CHANGING, values


def test_failed_requests_change_nothing_and_later_ones_succeed(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    fault = broker.fail(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, times=2)

    (delivered,) = client.produce("orders", [b"late"])

    assert (delivered.offset, fault.used, fault.is_used_up) == (0, 2, True)
    assert values(broker) == [b"late"]


def test_error_that_does_not_pass_reaches_the_client(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    broker.fail(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)

    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        client.produce("orders", [b"never"])
    broker.clear_faults()
    assert client.produce("orders", [b"now"])[0].offset == 0


def test_failed_fetches_are_tried_again(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    broker.append("orders", [b"a"])
    fault = broker.fail(ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)

    assert [record.value for record in client.read("orders")] == [b"a"]
    assert fault.used == 2


@pytest.mark.parametrize("api", CHANGING, ids=lambda api: api.name)
def test_every_api_that_changes_something_can_be_refused_and_then_does_nothing(
    broker: Broker, client: BlockingClient, api: ApiKey
) -> None:
    broker.create_topic("orders")
    broker.append("orders", [b"a", b"b"])
    broker.fail(api, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    answer = client.wait_for(client.cluster.call(1, api, {"timeout_ms": 1000, **CHANGING[api]}))

    assert "error_code=<ErrorCode.cluster_authorization_failed: 31>" in repr(answer)
    assert broker.topics() == ["orders"]
    assert values(broker) == [b"a", b"b"]


def test_question_for_versions_can_be_refused(broker: Broker, client: BlockingClient) -> None:
    broker.fail(ApiKey.API_VERSIONS, ErrorCode.UNKNOWN_SERVER_ERROR)
    software = {"client_software_name": "test", "client_software_version": "1"}

    answer = client.wait_for(client.cluster.call(1, ApiKey.API_VERSIONS, software))

    assert (answer.error_code.value, answer.api_keys) == (ErrorCode.UNKNOWN_SERVER_ERROR, ())


def test_api_that_only_reads_is_answered_with_the_error_in_every_place(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders", partitions=2)
    broker.fail(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE)

    answer = client.wait_for(client.cluster.call(1, ApiKey.METADATA, {"topics": None}))

    (topic,) = answer.topics
    codes = [topic.error_code.value, *(one.error_code.value for one in topic.partitions)]
    assert codes == [ErrorCode.LEADER_NOT_AVAILABLE] * 3


def test_lost_answer_is_sent_again_and_stored_once(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    fault = broker.lose_answers(ApiKey.PRODUCE)

    client.produce("orders", [b"once"])

    assert fault.used == 1
    assert values(broker) == [b"once"]


def test_dropped_request_is_sent_again(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    fault = broker.drop(ApiKey.PRODUCE)

    client.produce("orders", [b"once"], options=ProducerOptions(is_idempotent=False))

    assert fault.used == 1
    assert values(broker) == [b"once"]


def test_delayed_request_is_answered_later(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    fault = broker.delay(0.05, ApiKey.PRODUCE)
    began = asyncio.run_coroutine_threadsafe(_loop_time(), client._loop).result()

    client.produce("orders", [b"a"])

    assert fault.used == 1
    assert asyncio.run_coroutine_threadsafe(_loop_time(), client._loop).result() - began >= 0.05


async def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def test_fault_for_every_api_takes_whatever_comes(broker: Broker, client: BlockingClient) -> None:
    fault = broker.drop(times=3)

    assert client.topics() == []
    assert fault.used == 3


def test_dropped_connections_are_made_again(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    broker.drop_connections()

    assert [topic.name for topic in client.topics()] == ["orders"]


def test_faults_hold_over_a_restart(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    fault = broker.fail(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS)
    broker.restart()

    client.produce("orders", [b"a"])

    assert fault.used == 1


def test_every_api_is_known_as_changing_or_reading() -> None:
    reading = {api for api in APIS if APIS[api].name.startswith(("Describe", "List", "Metadata", "Find", "ApiV"))}
    others = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH}
    refused = {ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.CONSUMER_GROUP_HEARTBEAT}  # for want of what they change

    assert set(APIS) == reading | set(CHANGING) | others | refused
