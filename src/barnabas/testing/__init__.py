"""A broker for test-suites: in the same process, on a free port, with data that is not kept.

```python
from barnabas.testing import ApiKey, Broker, ErrorCode

with Broker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    ...
    assert [record.value for record in broker.records("orders", count=2)] == [b"two coffees", b"a tea"]
```

It is the real broker, on a network socket, so any Kafka client in any language can use it. `docs/testing.md` has the
whole story; `barnabas.pytest_plugin` brings it to pytest as fixtures.
"""

from barnabas.testing.broker import Broker
from barnabas.testing.cluster import Cluster
from barnabas.testing.cluster_broker import ClusterBroker
from barnabas.testing.faults import Fault
from barnabas.testing.groups import GroupMember, ObservedGroup
from barnabas.testing.records import StoredRecord
from barnabas.testing.running import BrokerFailed
from barnabas.testing.values import Record
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode

__all__ = [
    "ApiKey",
    "Broker",
    "BrokerFailed",
    "Cluster",
    "ClusterBroker",
    "ErrorCode",
    "Fault",
    "GroupMember",
    "ObservedGroup",
    "Record",
    "StoredRecord",
]
