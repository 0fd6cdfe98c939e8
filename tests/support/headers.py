"""Batch headers without batches, for cores that look at nothing else."""

from barnabas.records.batch import CONTROL, MAGIC, TRANSACTIONAL, BatchHeader


def data_header(
    producer_id: int = 1,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 1,
    *,
    transactional: bool = False,
    timestamp: int = 1_000,
) -> BatchHeader:
    """As a client sends it: no offset assigned yet."""
    return BatchHeader(
        base_offset=0,
        length=100,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        count=count,
    )


def marker_header(producer_id: int = 1, epoch: int = 0, *, timestamp: int = 1_000) -> BatchHeader:
    """The batch of an end-of-transaction marker."""
    header = data_header(producer_id, epoch, -1, timestamp=timestamp)
    return header._replace(attributes=TRANSACTIONAL | CONTROL)
