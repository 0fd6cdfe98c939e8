"""What goes wrong between two processes. The code that opened a connection gets one of these errors."""

from barnabas.base.addresses import address_text
from barnabas.base.errors import BarnabasError


class NetworkFailed(BarnabasError):  # noqa: N818 - named as the fact that it is
    """The network or the peer failed to do its part."""


class ListenFailed(NetworkFailed):
    """An address cannot be listened on: taken, unknown, or not allowed."""

    def __init__(self, host: str, port: int, cause: OSError) -> None:
        super().__init__(f"cannot listen on {address_text(host or '*', port)}: {cause.strerror or cause}")
        self.errno = cause.errno


class ConnectFailed(NetworkFailed):
    """Nobody answered at this address in time."""


class ConnectRefused(ConnectFailed):
    """Nobody listens at this address: its host says so."""


class ChannelClosed(NetworkFailed):
    """The connection ended before the reply came; whether the request was carried out is not known."""
