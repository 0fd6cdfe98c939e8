"""Topics are what was asked of them: created and deleted ones, their partitions, their settings.

Whether a topic exists, and each setting of it, is a register (`register`): calls write it, and what is there at the end
reads it, as does everybody who lists the topics. The metadata is on disk when a call is answered, so nothing is excused
by a loss of power. The partitions of a topic never become fewer. In a cluster any broker lists the topics, also one
that a fault keeps away from the controller: what is listed then may be old.
"""

from collections.abc import Iterator
from math import inf

from barnabas.sim.checkers.calls import AdminCall, Span, admin_calls
from barnabas.sim.checkers.delays import Delays
from barnabas.sim.checkers.guarantees import deleted_topics
from barnabas.sim.checkers.register import Register
from barnabas.sim.histories.events import History, Led

_END = Span(inf, inf)


def check_topics(history: History) -> Iterator[str]:
    yield from _existence(history)
    yield from _partitions(history)
    yield from _settings(history)


def _existence(history: History) -> Iterator[str]:
    topics: dict[str, Register[bool]] = {}
    for call in admin_calls(history, "create_topic", "delete_topic"):
        topics.setdefault(call.topic, Register(False)).write(call.span, call.called.action == "create_topic")
    delays, brokers = Delays(history), {event.client for event in history.of(Led)}
    for call in admin_calls(history, "describe"):
        if isinstance(call.result, tuple) and not delays.is_any_late(brokers, call.span.called_at):
            yield from _missing(topics, call.result, call.span, f"at {call.span.done_at:.3f} s")
    if history.is_complete:
        yield from _missing(topics, tuple(history.final_topics), _END, "at the end")


def _missing(topics: dict[str, Register[bool]], names: tuple[str, ...], read: Span, when: str) -> Iterator[str]:
    for topic, register in topics.items():
        is_there = topic in names
        if register.objection(is_there, read):
            calls = "it was deleted" if is_there else "it was created and not deleted"
            yield f"topic {topic} {'is' if is_there else 'is not'} there {when}, though {calls}"


def _partitions(history: History) -> Iterator[str]:
    deleted = deleted_topics(history)
    counts: dict[str, list[tuple[Span, int]]] = {}
    asked: dict[str, int] = {}
    for call in admin_calls(history, "create_topic", "add_partitions", "list_offsets"):
        if call.topic in deleted:
            continue
        wanted = _wanted(call)
        if wanted is not None:
            asked[call.topic] = max(wanted, asked.get(call.topic, 0))
        count = len(call.result) if isinstance(call.result, tuple) else wanted
        if call.span.is_done and count is not None:
            counts.setdefault(call.topic, []).append((call.span, count))
    for topic, final in history.final_topics.items():
        if topic in counts:
            counts[topic].append((_END, final.partitions))
    for topic, known in counts.items():
        for number, (later, count) in enumerate(known):
            if count > asked[topic]:
                yield f"topic {topic} has {count} partitions; nobody asked for more than {asked[topic]}"
            earlier = [(one, span) for span, one in known[:number] if span.precedes(later) and one > count]
            if earlier and earlier[0][1].done_at is not None:
                most, span = max(earlier, key=lambda one: one[0])
                when = "at the end" if later is _END else f"at {later.done_at:.3f} s"
                yield f"topic {topic} had {most} partitions at {span.done_at:.3f} s, and {count} {when}"


def _wanted(call: AdminCall) -> int | None:
    names = {"create_topic": "partitions", "add_partitions": "total"}
    if call.called.action not in names:
        return None
    count = call.called.argument(names[call.called.action])
    assert isinstance(count, int)
    return count


def _settings(history: History) -> Iterator[str]:
    deleted = deleted_topics(history)
    registers: dict[tuple[str, str], Register[str | None]] = {}
    for call in admin_calls(history, "create_topic", "set_config"):
        given = call.called.argument("configs")
        assert isinstance(given, tuple)
        for name, value in given:
            registers.setdefault((call.topic, name), Register(None)).write(call.span, value)
    for (topic, name), register in registers.items():
        final = history.final_topics.get(topic)
        if final is None or topic in deleted:
            continue
        value = dict(final.configs).get(name)
        if objection := register.objection(value, _END):
            yield f"{name} of topic {topic} is {value!r} at the end, {objection}"
