"""What does certainty cost Bloom filters? Seqmark that looks each hit up among the ids on its disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.peers.seqmark import Seqmark

if TYPE_CHECKING:
    from benchmarks.peers import Peer

PEER: Peer = Seqmark(confirm=True)
