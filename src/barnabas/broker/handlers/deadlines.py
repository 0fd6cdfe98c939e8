"""The time that a client gives for a change of the cluster.

Zero or less is over before anything is begun: as in Kafka, everything in such a request is REQUEST_TIMED_OUT.
"""

from barnabas.wire.errors import ErrorCode

TIMED_OUT = {"error_code": ErrorCode.REQUEST_TIMED_OUT, "error_message": None}
"""What each thing in the request is answered with."""
