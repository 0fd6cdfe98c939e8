"""What Apache Kafka 3.9.1 left in ZooKeeper, as a file that always can be read, and how two such trees are compared.

`tests/unit/metadata/kafka_391_nodes.json` was written by a real Kafka (`tests/support/java/ZooKeeperKafka.java`, run by
`python -m tests.support.kafka_zookeeper`). The data of each node is as Kafka wrote it, byte by byte. What differs from
run to run is under `facts`: ports, ids, times.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "unit" / "metadata" / "kafka_391_nodes.json"
_TIMESTAMP = re.compile(rb'(?<="timestamp":")\d+')


@dataclass(frozen=True, slots=True)
class KafkaNode:
    path: str
    data: bytes | None
    """None for a node that was created without data."""
    version: int
    is_ephemeral: bool

    @property
    def content(self) -> Any:
        """What the data says: JSON without an order of fields, or of access rules; else the bytes."""
        return content(self.data)


@dataclass(frozen=True, slots=True)
class KafkaTree:
    facts: Mapping[str, str]
    nodes: Mapping[str, KafkaNode]

    @classmethod
    def parse(cls, lines: Sequence[str]) -> "KafkaTree":
        """From the output of `ZooKeeperKafka.java`; lines that are about something else are skipped."""
        rows = [line.split("\t") for line in lines]
        facts = {row[1]: row[2] for row in rows if row[0] == "fact"}
        nodes = [
            KafkaNode(path, None if data == "-" else bytes.fromhex(data), int(version), kind == "ephemeral")
            for _, path, version, kind, data in [row for row in rows if row[0] == "node"]
        ]
        for node in nodes:
            if node.data and (time := _TIMESTAMP.search(node.data)):
                facts[f"timestamp {node.path}"] = time[0].decode()
        return cls(facts, {node.path: node for node in sorted(nodes, key=lambda node: node.path)})

    @classmethod
    def load(cls) -> "KafkaTree":
        recorded = json.loads(FILE.read_text(encoding="utf-8"))
        nodes = [
            KafkaNode(
                one["path"], None if one["data"] is None else one["data"].encode(), one["version"], one["ephemeral"]
            )
            for one in recorded["nodes"]
        ]
        return cls(recorded["facts"], {node.path: node for node in nodes})

    def save(self) -> None:
        nodes = [
            {
                "path": node.path,
                "version": node.version,
                "ephemeral": node.is_ephemeral,
                "data": None if node.data is None else node.data.decode(),
            }
            for node in self.nodes.values()
        ]
        facts = json.dumps(dict(sorted(self.facts.items())), indent=1)
        lines = ",\n".join(json.dumps(node, ensure_ascii=False) for node in nodes)
        FILE.write_text(f'{{"kafka": "3.9.1",\n"facts": {facts},\n"nodes": [\n{lines}\n]}}\n', encoding="utf-8")

    def with_facts(self, facts: Mapping[str, str]) -> "KafkaTree":
        """This tree as it would be with the ports, ids and times of another run."""
        assert facts.keys() == self.facts.keys()
        nodes = {}
        for path, node in self.nodes.items():
            names = [name for name in facts if not name.startswith("timestamp") or name == f"timestamp {path}"]
            values = {self.facts[name].encode(): facts[name].encode() for name in names}
            nodes[path] = KafkaNode(path, node.data and _replaced(node.data, values), node.version, node.is_ephemeral)
        return KafkaTree(facts, nodes)


def _replaced(data: bytes, values: Mapping[bytes, bytes]) -> bytes:
    """Whole words only, all at once: a new value may be another's old one."""
    any_value = re.compile(rb"(?<![\w-])(?:%b)(?![\w-])" % b"|".join(map(re.escape, values)))
    return any_value.sub(lambda found: values[found[0]], data)


def content(data: bytes | None) -> Any:
    if not data:
        return data
    try:
        parsed = json.loads(data)
    except ValueError:
        return data
    if isinstance(parsed, dict) and "acls" in parsed:
        parsed["acls"].sort(key=lambda rule: json.dumps(rule, sort_keys=True))
    return parsed
