"""A history as lines that a person can follow, in the order of time. Pure: a `History` in, lines out.

```
    3.214 s  broker-1    power loss
    3.500 s  producer-1  sent records 40-44 to flushed-0: acked at offsets 17-21 after 0.012 s
    3.730 s  broker-1    start
    4.100 s  reader-1    read flushed-0 from offset 0 to 22: 22 records of epochs 1-2
```

- What one operation sent to a partition is one line; so is what a reader got of a partition without a gap.
- An answer stands in the line of its call, unless something happened to the world in between: then it has a line of its
  own at its own time, because the order matters.
- A record's number is the one in its value (`producer-1/40/…`), which the checkers' texts name.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Final, TypeVar

from barnabas.base.ids import TopicPartition
from barnabas.cli.output import plural
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
    Led,
    OperationEnded,
    Owned,
    Positioned,
    ReadFailed,
    Registered,
    SendFailed,
    Sent,
    Shown,
    StateWritten,
)

_Told = TypeVar("_Told", bound=Event)
_Answer = Acked | SendFailed | AdminDone | AdminFailed | CommitDone | CommitFailed | CommittedSeen
_Call = AdminCalled | CommitCalled | CommittedAsked

LONG_SECONDS: Final = 10.0
"""An operation that took longer is told."""
_CLIENTS_OWN: Final = ("failed", "unreadable")
"""What `Happened` also tells of clients, and is no fault."""


class Kind(Enum):
    FAULT = "fault"
    CLIENT = "client"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class StoryLine:
    at: float
    who: str
    text: str
    kind: Kind

    def __str__(self) -> str:
        first, *more = self.text.split("\n")
        return "\n".join([f"{self.at:9.3f} s  {self.who:<11} {first}", *(f"{'':25}{line}" for line in more)])


def tell(history: History, log_lines: Sequence[StoryLine] = ()) -> list[StoryLine]:
    """The events, and the log lines among them."""
    lines = _Teller(history).lines()
    # A stable sort: what was logged at the same moment stands after what happened.
    return sorted([*lines, *log_lines], key=lambda line: line.at)


def tell_end(history: History) -> list[str]:
    """What the partitions hold when everything is healed."""
    if not history.is_complete:
        return ["the history did not come to its end"]
    return [
        f"at the end {partition} holds offsets {log.start_offset} to {log.end_offset}: "
        f"{plural(len(log.records), 'record')}"
        for partition, log in sorted(history.final.items())
    ]


class _Teller:
    """Goes through the events once; a line stands at the place of its first event."""

    def __init__(self, history: History) -> None:
        self._events = history.events
        self._answers: dict[int, tuple[int, _Answer]] = {}
        """The answer to a call by the call's number, and its place."""
        self._age_at: list[int] = []
        """For each event: how many things had happened to the world."""
        age = 0
        for place, event in enumerate(self._events):
            age += isinstance(event, Happened)
            self._age_at.append(age)
            if isinstance(event, _Answer):
                self._answers[event.number] = (place, event)
        self._told: list[tuple[int, StoryLine]] = []
        self._introduced: set[str] = set()
        self._taken: set[int] = set()
        """The places of events that an earlier line tells."""

    def lines(self) -> list[StoryLine]:
        for place, event in enumerate(self._events):
            if place not in self._taken:
                self._tell(place, event)
        return [line for _, line in sorted(self._told, key=lambda told: told[0])]

    def _say(self, place: int, text: str, kind: Kind = Kind.CLIENT) -> None:
        event = self._events[place]
        self._told.append((place, StoryLine(event.at, event.client, text, kind)))

    def _tell(self, place: int, event: Event) -> None:
        match event:
            case Happened():
                kind = Kind.CLIENT if event.what in _CLIENTS_OWN else Kind.FAULT
                self._say(place, f"{event.what}: {event.details}" if event.details else event.what, kind)
            case Sent():
                self._sent(place, event)
            case Shown():
                self._shown(place, event)
            case Positioned():
                self._positioned(place, event)
            case ReadFailed():
                self._read_failed(place, event)
            case Owned():
                owned = _names(event.partitions) or "nothing"
                self._say(place, f"owns {owned} in generation {event.generation} of {event.group}")
            case AdminCalled() | CommitCalled() | CommittedAsked():
                self._called(place, event)
            case Registered() | StateWritten() | Led():
                self._say(place, event.sentence)
            case OperationEnded():
                if event.seconds > LONG_SECONDS:
                    self._say(place, f"{event.operation} took {event.seconds:.1f} s")
            case _ if not isinstance(event, _Answer):  # of a kind that this module does not know yet
                self._say(place, _plain(event))

    def _group(
        self, place: int, first: _Told, belongs: Callable[[_Told], bool], *, until: type[Event] | None = None
    ) -> list[_Told]:
        """What the same client saw next of the same kind, as long as nothing happens to the world."""
        group = [first]
        for later in range(place + 1, len(self._events)):
            event = self._events[later]
            if self._age_at[later] != self._age_at[place]:
                break
            if event.client != first.client:
                continue
            if until is not None and isinstance(event, until):
                break
            if isinstance(event, type(first)) and later not in self._taken and belongs(event):
                group.append(event)
                self._taken.add(later)
        return group

    # Producers

    def _sent(self, place: int, event: Sent) -> None:
        group = self._group(place, event, lambda one: one.partition == event.partition, until=OperationEnded)
        how = ""
        if event.client not in self._introduced:
            self._introduced.add(event.client)
            how = f" with acks={'all' if event.acks == -1 else event.acks}{', idempotent' * event.is_idempotent}"
        by_age: dict[int, list[tuple[int, _Answer]]] = {}
        for one in group:
            if one.number in self._answers:
                found = self._answers[one.number]
                by_age.setdefault(self._age_at[found[0]], []).append(found)
        at_once = by_age.pop(self._age_at[place], [])
        what = f"{'record' if len(group) == 1 else 'records'} {_ranges(one.number for one in group)}"
        outcomes = _outcomes(event, [answer for _, answer in at_once])
        later = sum(map(len, by_age.values()))
        if later:
            outcomes.append(f"{later} answered later")
        if len(group) > len(at_once) + later:
            outcomes.append(f"{len(group) - len(at_once) - later} never answered")
        self._say(place, f"sent {what} to {event.partition}{how}: {'; '.join(outcomes)}")
        for answers in by_age.values():
            numbers = _ranges(answer.number for _, answer in answers)
            about = f"{'record' if len(answers) == 1 else 'records'} {numbers}, sent to {event.partition}"
            outcome = "; ".join(_outcomes(event, [answer for _, answer in answers]))
            self._say(min(answers, key=lambda found: found[0])[0], f"{about} at {event.at:.3f} s: {outcome}")

    # Readers

    def _positioned(self, place: int, event: Positioned) -> None:
        group = self._group(place, event, lambda one: one.at == event.at and one.offset == event.offset)
        self._say(place, f"reads {_names(one.partition for one in group)} from offset {event.offset}")

    def _read_failed(self, place: int, event: ReadFailed) -> None:
        times = len(self._group(place, event, lambda one: one.error == event.error))
        self._say(place, f"could not read: {event.error}{f' ({times} times)' if times > 1 else ''}")

    def _shown(self, place: int, event: Shown) -> None:
        next_offset: int | None = event.next_offset

        def follows(one: Shown) -> bool:
            nonlocal next_offset
            if one.partition != event.partition or next_offset is None:
                return False
            next_offset = one.next_offset if one.first_offset == next_offset else None
            return next_offset is not None

        group = self._group(place, event, follows)
        records = [record for one in group for record in one.records]
        if not records and group[-1].next_offset == event.first_offset:
            return
        epochs = sorted({record.leader_epoch for record in records})
        of = f" of {'epoch' if len(epochs) == 1 else 'epochs'} {_ranges(epochs)}" if epochs else ""
        until = f", until {group[-1].at:.3f} s" if len(group) > 1 else ""
        self._say(
            place,
            f"read {event.partition} from offset {event.first_offset} to {group[-1].next_offset}: "
            f"{plural(len(records), 'record')}{of}, high watermark {group[-1].high_watermark}{until}",
        )

    # Calls with one answer

    def _called(self, place: int, call: _Call) -> None:
        what = _call_text(call)
        found = self._answers.get(call.number)
        if found is None:
            self._say(place, f"{what}: never answered")
            return
        answered, answer = found
        if self._age_at[answered] == self._age_at[place]:
            self._say(place, f"{what}: {_answer_text(answer)}{_after(call, answer)}")
        else:
            self._say(place, f"{what}: answered later")
            self._say(answered, f"{what} of {call.at:.3f} s: {_answer_text(answer)}")


def _outcomes(sent: Sent, answers: Sequence[_Answer]) -> list[str]:
    """What came of records: acknowledged where, failed why."""
    acked = [answer for answer in answers if isinstance(answer, Acked)]
    errors: dict[str, int] = {}
    for answer in answers:
        if isinstance(answer, SendFailed):
            errors[answer.error] = errors.get(answer.error, 0) + 1
    texts = []
    if acked:
        offsets = [answer.offset for answer in acked if answer.offset >= 0]
        where = f" at offset{'s' * (len(offsets) > 1)} {_ranges(offsets)}" if offsets else ""
        texts.append(f"acked{where}{_after(sent, acked[-1])}")
    texts += [f"{count} failed: {error}" for error, count in errors.items()]
    return texts


def _call_text(call: _Call) -> str:
    match call:
        case AdminCalled():
            texts = (
                _settings(value) if name == "configs" else f"{name}={_value(value)}" for name, value in call.arguments
            )
            return f"{call.action}({', '.join(filter(None, texts))})"
        case CommitCalled():
            return f"committed {_offsets(call.offsets)} for {call.group}"
        case CommittedAsked():
            return f"asked what {call.group} has committed"


def _answer_text(answer: _Answer) -> str:
    match answer:
        case AdminFailed() | CommitFailed() | SendFailed():
            return f"failed: {answer.error}"
        case CommittedSeen():
            return _offsets(answer.offsets) or "nothing"
        case AdminDone() if answer.result is not None:
            return f"done: {_value(answer.result)}"
        case _:
            return "done"


def _after(call: Event, answer: Event) -> str:
    seconds = answer.at - call.at
    return f" after {seconds:.3f} s" if seconds >= 0.0005 else ""


def _offsets(offsets: Iterable[tuple[TopicPartition, int]]) -> str:
    return ", ".join(f"{partition} at {offset}" for partition, offset in offsets)


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))


def _settings(configs: object) -> str:
    assert isinstance(configs, tuple)
    return ", ".join(f"{name}={value}" for name, value in configs)


def _value(value: object) -> str:
    if isinstance(value, tuple) and not isinstance(value, TopicPartition):
        return f"({', '.join(map(_value, value))})"
    return str(value)


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers that ascend: "17-21, 25"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def _plain(event: Event) -> str:
    details = ", ".join(
        f"{one.name}={_value(getattr(event, one.name))}" for one in fields(event) if one.name not in ("at", "client")
    )
    return f"{type(event).__name__}({details})"
