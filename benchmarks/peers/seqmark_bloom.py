"""What do Bloom filters save? Seqmark that keeps no ids locally: a hit is taken for a duplicate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.peers.seqmark import Seqmark

if TYPE_CHECKING:
    from benchmarks.peers import Peer

PEER: Peer = Seqmark(confirm=False)
