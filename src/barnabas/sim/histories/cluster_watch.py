"""What happens to a cluster besides what its clients see: registrations, states of partitions, who begins to lead.

Registrations and states are taken from the ensemble's committed writes, so they are what is true, whatever brokers know
of it. Who leads is taken from the brokers themselves.
"""

import re
from collections.abc import Mapping
from typing import Final

from barnabas.base.ids import LeaderEpoch, TopicPartition
from barnabas.metadata.tree import TreeNode
from barnabas.metadata.znodes import BROKER_IDS, TOPICS, PartitionState
from barnabas.sim.histories.events import Led, Registered, StateWritten
from barnabas.sim.histories.recorder import Recorder
from barnabas.sim.world.node import BrokerNode
from barnabas.sim.world.zookeeper_messages import HOST as ZOOKEEPER

_STATE: Final = re.compile(rf"{TOPICS}/(?P<topic>[^/]+)/partitions/(?P<index>\d+)/state")
_REGISTRATION: Final = re.compile(rf"{BROKER_IDS}/(?P<broker>\d+)")


class ClusterWatch:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.states: dict[TopicPartition, PartitionState] = {}
        """Of the partitions that there are."""

    def written(self, nodes: Mapping[str, TreeNode | None]) -> None:
        """A write is committed."""
        for path, node in nodes.items():
            if found := _STATE.fullmatch(path):
                self._state_written(TopicPartition(found["topic"], int(found["index"])), path, node)
            elif node is not None and node.version == 0 and (found := _REGISTRATION.fullmatch(path)):
                now = self._recorder.now
                self._recorder.add(Registered(now, ZOOKEEPER, int(found["broker"]), node.czxid))

    def _state_written(self, partition: TopicPartition, path: str, node: TreeNode | None) -> None:
        if node is None:
            self.states.pop(partition, None)
            return
        state = self.states[partition] = PartitionState.decode(path, node.data)
        isr, elr = (
            tuple((one, state.broker_epoch_of(one) or 0) for one in members) for members in (state.isr, state.elr)
        )
        now, leader = self._recorder.now, state.leader
        self._recorder.add(
            StateWritten(now, ZOOKEEPER, partition, leader, state.leader_epoch, isr, elr, state.is_recovering)
        )

    def leads(self, node: BrokerNode, partition: TopicPartition, leader_epoch: LeaderEpoch) -> None:
        """A broker begins to serve."""
        self._recorder.add(Led(self._recorder.now, node.name, partition, leader_epoch, node.lives))
