"""What clients see of a broker that starts."""

import threading
import time
from typing import Any

from barnabas.testing import Broker
from barnabas.wire.apis import ApiKey
from tests.support.side_by_side import CLOSED, NO_ANSWER, Side

RESTARTS = 5


class _Reconnecting(threading.Thread):
    """Asks for the brokers on one new connection after the other, as a client does that has lost its broker."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._address = bootstrap
        self.is_ending = False
        self.answers: list[Any] = []

    def run(self) -> None:
        while not self.is_ending:
            side = Side("Barnabas", self._address)
            try:
                answer = side.ask(ApiKey.METADATA, 12, {"topics": []})
            except OSError:
                time.sleep(0.0002)
                continue
            finally:
                side.close()
            if answer not in (CLOSED, NO_ANSWER):
                self.answers.append(answer)


def test_first_answers_after_a_start_name_the_broker() -> None:
    with Broker() as broker:
        clients = [_Reconnecting(broker.bootstrap) for _ in range(3)]
        for client in clients:
            client.start()
        try:
            for _ in range(RESTARTS):
                broker.restart()
                count = len(clients[0].answers)
                while len(clients[0].answers) < count + 3:
                    time.sleep(0.001)
        finally:
            for client in clients:
                client.is_ending = True
            for client in clients:
                client.join()
        answers = [answer for client in clients for answer in client.answers]
        port = int(broker.bootstrap.rpartition(":")[2])
        seen = [[one["port"] for one in answer["brokers"]] for answer in answers]
        assert [ports for ports in seen if ports != [port]] == []
        assert all(answer["controller_id"] == answer["brokers"][0]["node_id"] for answer in answers)
