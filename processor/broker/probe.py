"""Tells whether a broker really serves.

An open port does not tell: Kafka listens before it has registered with its controller. A Metadata
request does, for the controller lists only brokers that it has let in. Written by hand, so that
the answer costs a millisecond and needs no client with threads or an event loop::

    request   size i32 │ api key i16 = 3 │ version i16 = 1 │ correlation i32 │ client id str │ topics i32 = 0
    response  size i32 │ correlation i32 │ brokers i32 │ node i32 │ host str │ port i32 │ ...
    str       length i16 │ bytes
"""

from __future__ import annotations

import socket
import struct

_CLIENT_ID = b"seqmark-probe"
_BODY = struct.pack(f">hhih{len(_CLIENT_ID)}si", 3, 1, 1, len(_CLIENT_ID), _CLIENT_ID, 0)


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
