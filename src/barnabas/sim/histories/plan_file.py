"""A plan as a file: JSON with the plan's own field names, so that a person can shorten or change one by hand.

```
{"format": 1, "seed": 17, "brokers": 1, …,
 "actors": [{"name": "producer-1", "kind": "ProducerOptions", "options": {"acks": -1, …}}, …],
 "operations": [{"actor": "producer-1", "action": "send", "arguments": {…}, "pause": 0.1}, …],
 "faults": [{"at": 3.2, "kind": "power_loss", "arguments": {"broker": 1, "off": 0.5}}, …]}
```

A decoded plan equals the one that was encoded. JSON has no tuples: every list becomes one.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from barnabas.base.errors import BarnabasError
from barnabas.sim.histories.plan import (
    Actor,
    AdminOptions,
    Fault,
    MemberOptions,
    Operation,
    Plan,
    PlannedTopic,
    ProducerOptions,
    ReaderOptions,
)

FORMAT: Final = 1
_OPTIONS: Final = {kind.__name__: kind for kind in (ProducerOptions, ReaderOptions, MemberOptions, AdminOptions)}
_PARTS: Final = ("topics", "actors", "operations", "faults")


class InvalidPlanFile(BarnabasError):  # noqa: N818 - named as the fact that it is
    """The file holds no plan that can be run."""


def encode_plan(plan: Plan) -> str:
    """One line for each topic, actor, operation and fault."""
    content: dict[str, object] = {"format": FORMAT}
    content |= {one.name: getattr(plan, one.name) for one in fields(plan) if one.name not in _PARTS}
    lists: dict[str, list[dict[str, Any]]] = {
        "topics": [asdict(topic) for topic in plan.topics],
        "actors": [
            {"name": actor.name, "kind": type(actor.options).__name__, "options": asdict(actor.options)}
            for actor in plan.actors
        ],
        "operations": [asdict(operation) for operation in plan.operations],
        "faults": [asdict(fault) for fault in plan.faults],
    }
    lines = [f'"{name}": {json.dumps(value)}' for name, value in content.items()]
    for name, entries in lists.items():
        rows = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
        lines.append(f'"{name}": [\n{rows}\n]' if rows else f'"{name}": []')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def decode_plan(text: str) -> Plan:
    try:
        content: dict[str, Any] = json.loads(text)
        found = content.pop("format")
        if found != FORMAT:
            raise InvalidPlanFile(f"its format is {found}, this version reads {FORMAT}")
        parts = {name: content.pop(name) for name in _PARTS}
        return Plan(
            **{name: _frozen(value) for name, value in content.items()},
            topics=tuple(PlannedTopic(**_frozen(topic)) for topic in parts["topics"]),
            actors=tuple(_actor(actor) for actor in parts["actors"]),
            operations=tuple(Operation(**_frozen(operation)) for operation in parts["operations"]),
            faults=tuple(Fault(**_frozen(fault)) for fault in parts["faults"]),
        )
    except KeyError as error:
        raise InvalidPlanFile(f"it lacks {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidPlanFile(str(error)) from error


def _actor(content: Mapping[str, Any]) -> Actor:
    return Actor(content["name"], _OPTIONS[content["kind"]](**_frozen(content["options"])))


def _frozen(value: Any) -> Any:
    """Lists become tuples, as plans have them."""
    if isinstance(value, dict):
        return {name: _frozen(one) for name, one in value.items()}
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value


def save_plan(plan: Plan, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(encode_plan(plan), encoding="utf-8")


def load_plan(path: Path) -> Plan:
    try:
        return decode_plan(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidPlanFile(f"cannot read {path}: {error.strerror}") from error
    except (InvalidPlanFile, UnicodeDecodeError) as error:
        raise InvalidPlanFile(f"{path} is no plan: {error}") from error
