"""What happened in a scenario, line by line: the sentences of the page, and under each what clients and nodes saw.

It names records by their values, as the page does. `barnabas.sim.runs.story` tells the history of a seed, where values
mean nothing to people, and puts calls and answers together.
"""

from collections.abc import Sequence
from typing import Final

from barnabas.sim.histories.events import (
    Acked,
    AdminCalled,
    AdminDone,
    AdminFailed,
    CommitCalled,
    CommitDone,
    CommitFailed,
    CommittedAsked,
    CommittedSeen,
    Event,
    Happened,
    History,
    ImageSeen,
    Led,
    Owned,
    Positioned,
    ReadFailed,
    Registered,
    SendFailed,
    Sent,
    Shown,
    StateWritten,
)
from barnabas.sim.scenarios.clients import decoded
from barnabas.sim.scenarios.language import Statement
from barnabas.sim.world.world import World

_NODE_NOTES: Final = frozenset({"start", "serving", "stop", "kill", "power loss", "exit", "break", "connect"})


class Story:
    def __init__(self, world: World, history: History) -> None:
        self._world = world
        self._history = history
        self._told = 0
        """How many events of the history."""
        self._lines: list[str] = []
        self._sent: dict[int, str] = {}
        """Records under way, by the number of their event."""
        world.on_note = self._note

    def __str__(self) -> str:
        return "\n".join(["The story so far, in virtual time:", *self._lines])

    def tell(self, statement: Statement) -> None:
        self._add(self._world.loop.time(), f"{statement.line:3}: {statement.text}")

    def _note(self, now: float, what: Sequence[object]) -> None:
        for event in self._history.events[self._told :]:
            self._told += 1
            is_told_by_node = isinstance(event, Happened) and event.what in _NODE_NOTES
            if not is_told_by_node and not isinstance(event, ImageSeen):
                self._add(event.at, f"       {event.client} {self._sentence(event)}")
        match what:
            case (str(kind), *details) if kind in _NODE_NOTES:
                self._add(now, f"       {kind} {' '.join(map(str, details))}")

    def _add(self, now: float, text: str) -> None:
        self._lines.append(f"{now:9.3f} s {text}")

    def _sentence(self, event: Event) -> str:
        match event:
            case Sent():
                self._sent[event.number] = str(decoded(event.key, event.value))
                return f"hands {self._sent[event.number]} for {event.partition} to its producer"
            case Acked():
                return f"has an ack of {self._sent[event.number]} at offset {event.offset} of {event.partition}"
            case SendFailed():
                return f"has failed to send {self._sent[event.number]}: {event.error}"
            case Positioned():
                return f"goes to offset {event.offset} of {event.partition}"
            case Shown():
                shown = " ".join(f"{decoded(one.key, one.value)}@{one.offset}" for one in event.records)
                return f"reads {event.partition} from {event.first_offset} to {event.next_offset}: {shown or 'nothing'}"
            case ReadFailed() | CommitFailed() | AdminFailed():
                return f"fails: {event.error}"
            case Owned():
                owned = " ".join(map(str, event.partitions)) or "nothing"
                return f"owns {owned} in generation {event.generation} of {event.group}"
            case CommitCalled():
                return f"commits {', '.join(f'{partition} at {offset}' for partition, offset in event.offsets)}"
            case AdminCalled():
                return f"asks {event.action} {', '.join(f'{name}={value}' for name, value in event.arguments)}"
            case CommittedAsked():
                return f"asks what {event.group} has committed"
            case CommittedSeen():
                found = ", ".join(f"{partition} at {offset}" for partition, offset in event.offsets)
                return f"learns that {event.group} has committed {found or 'nothing'}"
            case Registered() | StateWritten() | Led():
                return event.sentence
            case CommitDone() | AdminDone():
                return "is done"
            case Happened():
                return f"{event.what} {event.details}"
            case _:
                return str(event)
