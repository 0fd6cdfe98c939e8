"""A group as the commands show it: its members, what each of them owns, and how far behind every partition is.

`look` gathers it in one pass over the coordinator and the partitions' leaders; the rest turns it into tables and JSON.
The numbers of one look belong together only as far as the cluster stood still meanwhile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.base.addresses import address_text
from barnabas.base.ids import TimestampMs, TopicPartition
from barnabas.cli.group.group_lag import LagMeter, PartitionLag, longest_behind_ms, total_lag
from barnabas.cli.output import plural
from barnabas.client.cluster import Cluster
from barnabas.client.group.group_admin import GroupDescription, GroupMember, describe_groups
from barnabas.client.group.group_offsets import OffsetAndMetadata, committed_offsets
from barnabas.groups.story import duration_text, short_member_id

UNKNOWN = "unknown"
OFFSET_COLUMNS = ("topic", "partition#", "committed#", "end#", "lag#", "behind#", "member")
_OWN_NAMES: Mapping[str, str] = {}
_NAME_LENGTH_MAX = 30
MEMBER_COLUMNS = ("member", "client", "host", "instance", "partitions#", "assigned")


@dataclass(frozen=True, slots=True)
class GroupView:
    description: GroupDescription
    lags: tuple[PartitionLag, ...]
    """Of every partition that has a commit or an owner."""
    committed: dict[TopicPartition, OffsetAndMetadata]
    owners: dict[TopicPartition, GroupMember]

    @property
    def spare(self) -> list[GroupMember]:
        """Members that own nothing."""
        return [member for member in self.description.members if not member.assignment]


async def look(cluster: Cluster, group: str, meter: LagMeter, now_ms: TimestampMs) -> GroupView | None:
    """None when there is no such group."""
    description = (await describe_groups(cluster, [group]))[group]
    if description is None:
        return None
    committed = await committed_offsets(cluster, group)
    owners = {partition: member for member in description.members for partition in member.assignment}
    offsets = {
        partition: committed[partition].offset if partition in committed else None
        for partition in committed.keys() | owners.keys()
    }
    lags = await meter.measure(offsets, now_ms)
    return GroupView(description, tuple(lags), committed, owners)


# --- for people -------------------------------------------------------------------------------------------------


def heading(description: GroupDescription) -> str:
    """One line about the group: "group 'billing' is Stable: 3 members, range, coordinator 1 at 127.0.0.1:9092"."""
    facts = []
    if description.are_members_known:
        facts.append(plural(len(description.members), "member"))
    if description.protocol:
        facts.append(description.protocol)
    if description.kind not in ("", "classic"):
        facts.append(f"of the {description.kind} protocol")
    if description.protocol_type not in ("", "consumer"):
        facts.append(f"of type {description.protocol_type}")
    node = description.coordinator
    facts.append(f"coordinator {node.node_id} at {address_text(node.host, node.port)}")
    return f"group '{description.group}' is {description.state}: {', '.join(facts)}"


def short_names(members: Sequence[GroupMember]) -> dict[str, str]:
    """A short name for each member id, as `--history` has it. Where two would be the same, the ids themselves."""
    names = {}
    for member in members:
        name = member.instance_id or short_member_id(member.member_id, member.client_id) or member.member_id
        half = _NAME_LENGTH_MAX // 2
        names[member.member_id] = name if len(name) <= _NAME_LENGTH_MAX else f"{name[:half]}…{name[-half:]}"
    are_different = len(set(names.values())) == len(names)
    return names if are_different else {member.member_id: member.member_id for member in members}


def offset_rows(view: GroupView, names: Mapping[str, str] = _OWN_NAMES) -> list[tuple[str, ...]]:
    """`names` are short names of members, by their ids."""
    rows: list[tuple[str, ...]] = []
    for lag in view.lags:
        owner = view.owners.get(lag.partition)
        rows.append(
            (
                lag.partition.topic,
                str(lag.partition.partition),
                "none" if lag.committed is None else str(lag.committed),
                _number(lag.end),
                _number(lag.lag),
                behind_text(lag.behind_ms),
                "none" if owner is None else names.get(owner.member_id) or member_name(owner),
            )
        )
    return rows


def member_rows(members: Sequence[GroupMember], names: Mapping[str, str] = _OWN_NAMES) -> list[tuple[str, ...]]:
    return [
        (
            names.get(member.member_id, member.member_id),
            member.client_id,
            member.host.removeprefix("/"),
            member.instance_id or "",
            str(len(member.assignment)),
            assignment_text(member.assignment) or "nothing",
        )
        for member in members
    ]


def notes(view: GroupView) -> list[str]:
    """What a row cannot say."""
    lines = [f"{lag.partition}: {lag.note}" for lag in view.lags if lag.note]
    if not view.description.are_members_known:
        lines.append(f"members of a group of the {view.description.kind} protocol cannot be shown")
    return lines


def summary(view: GroupView) -> str:
    """ "12 records behind, by 42 s"; the longest time of all partitions."""
    lag = total_lag(view.lags)
    if lag is None:
        return "nothing is committed" if not view.committed else "the lag is unknown"
    if lag == 0:
        return "caught up"
    behind_ms = longest_behind_ms(view.lags)
    return f"{plural(lag, 'record')} behind, by {behind_text(behind_ms)}"


def behind_text(behind_ms: int | None) -> str:
    return UNKNOWN if behind_ms is None else "0 s" if behind_ms == 0 else duration_text(behind_ms)


def member_name(member: GroupMember) -> str:
    """What people recognise first: the instance, else the client with the part of its id that differs."""
    if member.instance_id:
        return member.instance_id
    return member.member_id or member.client_id


def assignment_text(assignment: Sequence[TopicPartition]) -> str:
    """ "orders 0,1,4; letters 2"."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(assignment):
        topics.setdefault(topic, []).append(partition)
    return "; ".join(f"{topic} {','.join(map(str, indexes))}" for topic, indexes in topics.items())


def _number(number: int | None) -> str:
    return UNKNOWN if number is None else str(number)


# --- for programs -----------------------------------------------------------------------------------------------


def view_fields(view: GroupView, *, with_members: bool, with_offsets: bool) -> dict[str, Any]:
    description = view.description
    fields: dict[str, Any] = {
        "group": description.group,
        "state": description.state,
        "type": description.kind,
        "protocol_type": description.protocol_type,
        "assignor": description.protocol,
        "coordinator": description.coordinator.node_id,
    }
    if with_members:
        fields["members"] = (
            [_member_fields(one) for one in description.members] if description.are_members_known else None
        )
    if with_offsets:
        fields["offsets"] = [_offset_fields(view, lag) for lag in view.lags]
        fields["lag"] = total_lag(view.lags)
        fields["behind_ms"] = longest_behind_ms(view.lags)
    return fields


def _member_fields(member: GroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host.removeprefix("/"),
        "topics": None if member.subscription is None else list(member.subscription.topics),
        "assigned": [{"topic": topic, "partition": partition} for topic, partition in sorted(member.assignment)],
    }


def _offset_fields(view: GroupView, lag: PartitionLag) -> dict[str, Any]:
    owner = view.owners.get(lag.partition)
    committed = view.committed.get(lag.partition)
    return {
        "topic": lag.partition.topic,
        "partition": lag.partition.partition,
        "committed": lag.committed,
        "metadata": None if committed is None else committed.metadata,
        "start": lag.start,
        "end": lag.end,
        "lag": lag.lag,
        "behind_ms": lag.behind_ms,
        "note": lag.note or None,
        "member_id": None if owner is None else owner.member_id,
    }
