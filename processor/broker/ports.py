"""Claims two ports for the embedded broker that nobody takes from it, and tells whether a broker serves.

Linux lets Java listen on a port that another socket is bound to but does not listen on, when both set
SO_REUSEADDR; nobody else is given that port meanwhile. So the claim is held as long as the broker lives, its
restarts included. Elsewhere it must be let go before Java starts, and a port lost in between is seen as a
clash.

An open port does not tell whether a broker really serves: Kafka listens before it has registered with its
controller. A Metadata request does, for the controller lists only brokers that it has let in. Written by hand,
so that the answer costs a millisecond and needs no client with threads or an event loop::

    request   size i32 │ api key i16 = 3 │ version i16 = 1 │ correlation i32 │ client id str │ topics i32 = 0
    response  size i32 │ correlation i32 │ brokers i32 │ node i32 │ host str │ port i32 │ ...
    str       length i16 │ bytes
"""

from __future__ import annotations

import errno
import socket
import struct
import sys

from processor.errors import BrokerError

HOST = "127.0.0.1"
_CLIENT_ID = b"seqmark-probe"
_BODY = struct.pack(f">hhih{len(_CLIENT_ID)}si", 3, 1, 1, len(_CLIENT_ID), _CLIENT_ID, 0)


class PortTakenError(BrokerError):
    """Somebody else listens there."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"{address} is taken by another program: stop that one, or choose another port "
            "(seqmark broker --port P; 0 takes a free one)."
        )


class Ports:
    """A claim on the broker's and the controller's port.

    Args:
        port: The broker's; 0 takes a free one, as the controller always does.

    Raises:
        PortTakenError: Somebody listens on `port`.
        BrokerError: It may not be used, or there is no free one.
    """

    def __init__(self, port: int) -> None:
        self._held: list[socket.socket] = []
        try:
            self.broker = self._claim(port)
            self.controller = self._claim(0)
        except OSError as exc:
            self.release()
            if exc.errno == errno.EADDRINUSE:
                raise PortTakenError(f"{HOST}:{port}") from exc
            raise BrokerError(f"cannot listen on {HOST}:{port}: {exc}. Choose another port.") from exc
        if sys.platform != "linux":
            self.release()

    def release(self) -> None:
        """Let the ports go."""
        for held in self._held:
            held.close()
        self._held.clear()

    def _claim(self, port: int) -> int:
        held = socket.socket()
        self._held.append(held)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((HOST, port))
        claimed: int = held.getsockname()[1]
        return claimed


def serves(host: str, port: int, timeout_s: float = 1.0) -> bool:
    """Return whether a broker answers there and its cluster counts a broker as alive."""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(_BODY)) + _BODY)
            with connection.makefile("rb") as answer:
                head = answer.read(12)
    except OSError:
        return False
    if len(head) < 12:
        return False
    brokers: int = struct.unpack(">iii", head)[2]
    return brokers > 0
