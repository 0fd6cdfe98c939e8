"""ProbeBroker: whether another broker is refused here, told to brokers alone."""

from pathlib import Path

import pytest

from barnabas.broker.authorizer import Operation, Resource
from barnabas.broker.caller import Caller
from barnabas.controller.suspicion import Suspect
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from tests.support.broker_parts import NODE_ID, served_broker
from tests.support.network import run


class DenyAll:
    allows_all = False

    def allows(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        return False


@pytest.mark.parametrize("is_refused", [True, False])
def test_answer_is_what_a_connection_came_to(tmp_path: Path, is_refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def probe(suspect: Suspect) -> bool:
        asked.append(suspect)
        return is_refused

    async def scenario() -> None:
        async with served_broker(tmp_path) as served:
            monkeypatch.setattr(served.broker.services.suspecting, "is_refused", probe)
            answer = await served.ask(ApiKey.PROBE_BROKER, 0, broker_id=7, broker_epoch=70)
            assert (answer.error_code, answer.is_refused) == (ErrorCode.NONE, is_refused)

    run(scenario())
    assert asked == [Suspect(7, 70)]


def test_broker_that_suspects_nobody_agrees_with_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as served:
            epoch = served.broker.services.seat.broker_epoch
            for broker_id in (NODE_ID, NODE_ID + 1):
                answer = await served.ask(ApiKey.PROBE_BROKER, 0, broker_id=broker_id, broker_epoch=epoch)
                assert (answer.error_code, answer.is_refused) == (ErrorCode.NONE, False)

    run(scenario())


def test_client_without_rights_learns_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, authorizer=DenyAll()) as served:
            answer = await served.ask(ApiKey.PROBE_BROKER, 0, broker_id=NODE_ID, broker_epoch=1)
            assert (answer.error_code, answer.is_refused) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, False)

    run(scenario())
