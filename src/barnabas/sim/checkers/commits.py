"""A committed offset is the last that was committed: it never goes back but by a later commit.

Each partition of a group is a register (`register`): commits of members, automatic ones too, write it, and the admin
reads it. Commits are written to the log without a sync, so a loss of power may take them.
"""

from collections.abc import Iterator
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.sim.checkers.calls import commit_calls, committed_calls
from barnabas.sim.checkers.guarantees import OFFSETS_TOPIC, are_groups_damaged, clock_ahead_ms, deleted_topics
from barnabas.sim.checkers.power_loss import PowerLosses
from barnabas.sim.checkers.register import Register
from barnabas.sim.histories.events import History

_EXPIRY_MS: Final = 7 * 86_400_000
"""How long the offsets of an empty group are kept (`offsets.retention.minutes`)."""


def check_commits(history: History) -> Iterator[str]:
    if are_groups_damaged(history):
        return
    losses, deleted = PowerLosses(history).of_topic(OFFSETS_TOPIC), deleted_topics(history)
    may_expire = clock_ahead_ms(history) >= _EXPIRY_MS
    registers: dict[tuple[str, TopicPartition], Register[int | None]] = {}
    for call in commit_calls(history):
        for partition, offset in call.called.offsets:
            place = (call.called.group, partition)
            registers.setdefault(place, Register(None, losses)).write(call.span, offset)
    for question in committed_calls(history):
        seen: dict[TopicPartition, int | None] = dict(question.seen.offsets)
        for (group, partition), register in registers.items():
            if group != question.seen.group or partition.topic in deleted:
                continue
            found = seen.pop(partition, None)
            if found is None and may_expire:
                continue
            if objection := register.objection(found, question.span):
                yield (
                    f"at {question.seen.at:.3f} s {_said(found)} committed offset of {partition} in {group}, "
                    f"{objection}"
                )
        for partition, found in seen.items():
            what = f"{found} was the committed offset of {partition} in {question.seen.group}"
            yield f"at {question.seen.at:.3f} s {what}, which nobody had written"


def _said(offset: int | None) -> str:
    return "there was no" if offset is None else f"{offset} was the"
