"""Envelope, version 0: a request for the controller, handed on by another broker together with who asked.

- The request inside is served as if its caller had come here, and the answer is in the envelope's.
- NOT_CONTROLLER from any other broker: the one that handed it on looks for the controller again.
"""

from barnabas.broker.authorizer import Operation
from barnabas.broker.request import Request
from barnabas.broker.services import Services


class EnvelopeHandler:
    """What is checked before an envelope is opened; the dispatcher serves what is inside."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        self._services.check_cluster(request, Operation.CLUSTER_ACTION)
        self._services.seat.require_controller()
