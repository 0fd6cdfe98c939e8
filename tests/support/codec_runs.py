"""Which codec read the requests of a run: what users run must be what the tests ran."""

from barnabas.testing import Broker
from barnabas.wire.codecs import COMPILED_APIS, REFERENCE


def decoded_counts(broker: Broker) -> dict[str, int]:
    """How many Produce, Fetch and OffsetCommit requests the compiled codec read, and how many the reference."""
    running = broker._running
    assert running is not None, "the broker runs"
    routes = [running.broker.dispatcher.routes[key] for key in COMPILED_APIS]
    return {
        "compiled": sum(route.compiled.value for route in routes),
        "reference": sum(route.reference.value for route in routes),
    }


def check_codecs(broker: Broker, codecs: str) -> None:
    """The run went by these codecs, and did not pass them by."""
    counts = decoded_counts(broker)
    assert counts[codecs] > 0, counts
    if codecs == REFERENCE.name:
        assert counts["compiled"] == 0, counts
