"""AlterPartition, version 3: the ISRs that leaders on another broker propose, answered by the controller alone.

- A partition is answered with an error, or with its state as it is written now.
- STALE_BROKER_EPOCH for a broker that has another registration than the one it names.
- NOT_CONTROLLER for all of it when it is not known what was written: the broker learns that from the image.
- Not here: version 2, which does not say in which registrations members are in sync.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from barnabas.base.uuid import ZERO_UUID
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.controller.alterations import AlteredPartition, AskedIsr
from barnabas.metadata.znodes import NO_LEADER
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import AlterPartitionRequest


class AlterPartitionHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: AlterPartitionRequest) -> Values:
        services = self._services
        wanted = [
            AskedIsr(
                topic.topic_id or ZERO_UUID,
                one.partition_index,
                one.leader_epoch,
                one.partition_epoch,
                {member.broker_id: member.broker_epoch for member in one.new_isr_with_epochs},
            )
            async for topic in services.slices.each(asked.topics)
            for one in topic.partitions
        ]
        try:
            services.check_cluster(request, Operation.CLUSTER_ACTION)
            answers = await services.controller.alter_partitions(asked.broker_id, asked.broker_epoch, wanted)
        except KafkaError as error:
            return {"error_code": error.code, "topics": []}
        return {"error_code": ErrorCode.NONE, "topics": _topics(wanted, answers)}


def _topics(asked: Sequence[AskedIsr], answers: Sequence[AlteredPartition]) -> Iterator[Values]:
    pairs = zip(asked, answers, strict=True)
    for topic_id, partitions in groupby(pairs, key=lambda pair: pair[0].topic_id):
        yield {"topic_id": topic_id, "partitions": [_partition(one.index, answer) for one, answer in partitions]}


def _partition(index: int, answer: AlteredPartition) -> Values:
    written = answer.partition
    return {
        "partition_index": index,
        "error_code": answer.error_code,
        "leader_id": NO_LEADER if written is None else written.leader,
        "leader_epoch": -1 if written is None else written.leader_epoch,
        "isr": () if written is None else written.isr,
        "leader_recovery_state": 0 if written is None else int(written.is_recovering),
        "partition_epoch": -1 if written is None else written.partition_epoch,
    }
