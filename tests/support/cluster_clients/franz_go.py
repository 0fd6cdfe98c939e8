"""franz-go, by the program in `tests/support/franz_go`."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.cluster_clients.calls import TIMEOUT_SECONDS, Consumed, Described, Overview
from tests.support.franz_go_program import franz_go_program


class FranzGo:
    def overview(self, bootstrap: str) -> Overview:
        [seen] = _run("overview", bootstrap)
        return Overview(frozenset(seen["addresses"]), seen["controller"])

    def produce(self, bootstrap: str, topic: str, records: Mapping[str, str]) -> None:
        _run("produce", bootstrap, topic, standard_input="".join(f"{key}:{value}\n" for key, value in records.items()))

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        records = _run("consume", bootstrap, topic, str(count))
        return [Consumed(one["partition"], one["key"], one["value"]) for one in records]

    def member(self, bootstrap: str, group: str, topic: str) -> Sequence[str]:
        return (str(franz_go_program()), "member", bootstrap, group, topic)

    def create(self, bootstrap: str, topic: str) -> str:
        [told] = _run("create", bootstrap, topic)
        refusal: str = told["refusal"]
        return refusal

    def describe_and_delete(self, bootstrap: str, topic: str) -> Described:
        [told] = _run("describe-and-delete", bootstrap, topic)
        return Described(tuple(told["leaders"]), told["retention_ms"])


def _run(*arguments: str, standard_input: str = "") -> list[dict[str, Any]]:
    done = subprocess.run(
        [franz_go_program(), *arguments],
        input=standard_input,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
