"""What do receipts cost? Seqmark with a duplicates topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.peers.seqmark import Seqmark

if TYPE_CHECKING:
    from benchmarks.peers import Peer

PEER: Peer = Seqmark(receipts=True)
