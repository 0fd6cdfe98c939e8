"""kcat, the Debian package, whose librdkafka is an old one. It has no calls for administrators."""

import json
import subprocess
from collections.abc import Mapping, Sequence

from tests.support.cluster_clients.calls import SESSION_TIMEOUT_MS, TIMEOUT_SECONDS, Consumed, Overview

_RECORD = '{"event": "record", "partition": %p, "offset": %o, "key": "%k", "value": "%s", "at": 0}\n'


class Kcat:
    def overview(self, bootstrap: str) -> Overview:
        seen = json.loads(_kcat("-b", bootstrap, "-L", "-J"))
        return Overview(frozenset(broker["name"] for broker in seen["brokers"]), seen["controllerid"])

    def produce(self, bootstrap: str, topic: str, records: Mapping[str, str]) -> None:
        lines = "".join(f"{key}:{value}\n" for key, value in records.items())
        _kcat("-b", bootstrap, "-P", "-t", topic, "-K:", "-X", "partitioner=murmur2_random", standard_input=lines)

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        said = _kcat("-b", bootstrap, "-C", "-t", topic, "-o", "beginning", "-c", str(count), "-q", "-f", _RECORD)
        records = map(json.loads, said.splitlines())
        return [Consumed(one["partition"], one["key"], one["value"]) for one in records]

    def member(self, bootstrap: str, group: str, topic: str) -> Sequence[str]:
        session = ("-X", f"session.timeout.ms={SESSION_TIMEOUT_MS}", "-X", "heartbeat.interval.ms=300")
        commits = ("-X", "auto.commit.interval.ms=100", "-X", "auto.offset.reset=earliest")
        return ("kcat", "-b", bootstrap, "-G", group, "-u", "-f", _RECORD, *session, *commits, topic)


def _kcat(*arguments: str, standard_input: str = "") -> str:
    done = subprocess.run(
        ["kcat", *arguments], input=standard_input, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
