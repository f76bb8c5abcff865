r"""How much of a backfill a changelog partition has, byte for byte.

A backfill writes the ids or scopes of a history into the changelog, in the worker's own blocks, in many
transactions. Each of them ends with this record, under the key ``b"H"``, and the last one with the position in
its place, as every commit, and with ids their state before it. So a partition whose last record is of this kind
has no state yet: a worker refuses it by the backfill's name, and the same backfill goes on behind it::

    progress  | version u8 = 1 | slots u16 | blocks u64 | digest 16 B | size u8, run | crc u32 |

``blocks`` is how many blocks are there. ``digest`` is of what was staged: another history under the same name
does not go on with it. ``slots`` is the number of slots of the config that wrote it, by which the transactional
id is named that has to be fenced.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from schemas.changelog.values import CRC, CorruptStateError, name_at, named, opened, require_end, sealed

BACKFILL_KEY = b"H"
DIGEST_BYTES = 16
MOST_NAME_BYTES = 120
"""Of a run: its name stands in every commit and every receipt."""
_HEAD = struct.Struct(">BHQ16s")


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """What is committed of a backfill that is not whole.

    Attributes:
        run: Its name.
        digest: 16 bytes, of what was staged.
        blocks: How many blocks are there.
        slots: The number of slots of the config that it was loaded with.
    """

    run: str
    digest: bytes
    blocks: int
    slots: int

    def encode(self) -> bytes:
        """Return the value under `BACKFILL_KEY`."""
        head = _HEAD.pack(1, self.slots, self.blocks, self.digest)
        return sealed(BACKFILL_KEY, head + named(self.run))

    @classmethod
    def decode(cls, value: bytes) -> BackfillProgress:
        """Read a value.

        Raises:
            CorruptStateError: It is not one, or not whole.
        """
        body = opened(BACKFILL_KEY, value, max(_HEAD.size, len(value) - CRC.size))
        _, slots, blocks, digest = _HEAD.unpack_from(body)
        try:
            run, at = name_at(body, _HEAD.size)
        except (IndexError, UnicodeDecodeError) as error:
            raise CorruptStateError(f"the value under {BACKFILL_KEY!r} names no run") from error
        require_end(BACKFILL_KEY, body, at)
        return cls(run, digest, blocks, slots)
