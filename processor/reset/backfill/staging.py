"""Keeps in a folder what a backfill will load: per partition a file of blocks, and what they are of.

::

    backfill.json      which pipeline, definition, secret and run; per partition its cut, clock and blocks;
                       with ``route`` the cuts apart, of the source's partitions
    partition-N        | bytes u32 | block | bytes u32 | block | ...

A block is what a worker's commit writes (`processor.engine.ids.page`), big-endian, checksummed over the key
that it will have in the changelog: the ids of a partition are numbered from 1 on, in the order of their
readings. Their owner is `BACKFILLED`. What collided stands there as a worker writes it, too: of an id with
several records inside the window each is a row of a collision. In mode watermark a block has scopes
(`schemas.changelog.watermark`), each in one of them.

Invariant: ``backfill.json`` is written last and moved into its place; without it nothing is staged. The folder
has the key of the ids' hash in it, so it is its owner's alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from processor.engine.ids.block import IdRows, UnreadableBlockError, decode, encode, ids_within
from processor.engine.ids.clock import NEVER
from processor.engine.ids.page import BACKFILLED, HASH_BYTES, NO_COLLISIONS, NO_FINGERPRINTS, NONE
from processor.errors import StopError
from schemas.changelog.backfill import DIGEST_BYTES
from schemas.changelog.clock import ClockTrace
from schemas.changelog.ids import IdState, id_block_key
from schemas.changelog.values import CorruptStateError
from schemas.changelog.watermark import brought_key, encode_block, open_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from processor.engine.watermark.scope_table import ScopeTable

STAGED_NAME = "backfill.json"
STAGED_BLOCK_BYTES = 512 * 1024
"""Half of what a topic takes by default: about 22,000 ids, and no pipeline's changelog has to be altered."""
FIRST_NUMBER = 1
"""Of ids; 0 is none."""
_VERSION = 1
_SIZE = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class StagedPartition:
    """What is staged of one partition.

    Attributes:
        partition: Its number.
        cut: The first source offset that the history may lack: there the stream goes on. With ``route`` 0.
        clock_ms: What its clock reads after the history; `NEVER` where that has nothing of it, or no ids.
        rows: How many rows its blocks have, or scopes.
        blocks: How many they are.
    """

    partition: int
    cut: int
    clock_ms: int
    rows: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Staging:
    """What is staged of a history, ready to be loaded.

    Attributes:
        folder: Where.
        run: The backfill's name.
        pipeline: Whose state it will be.
        definition: 16 bytes: what its ids mean (`processor.judges.mode.Mode.definition`).
        secret: 16 random bytes, the key of their hash.
        fingerprints: Whether they have fingerprints.
        partitions: By number.
        digest: 16 bytes, of all that.
        sequences: Whether it has scopes with their sequences, and no ids.
        cuts: With ``route``, by partition of the source: where the stream goes on. The partitions are then
            those that ids are sent to, and have no cut of their own.
    """

    folder: Path
    run: str
    pipeline: str
    definition: bytes
    secret: bytes
    fingerprints: bool
    partitions: dict[int, StagedPartition]
    digest: bytes = b""
    sequences: bool = False
    cuts: Mapping[int, int] = field(default_factory=dict)

    def cut(self, number: int) -> int:
        """Return where the stream goes on in a partition of the source."""
        return self.cuts[number] if self.cuts else self.partitions[number].cut

    def write(self) -> Staging:
        """Declare the folder staged, whose partitions are written; returns what `read` does.

        Raises:
            OSError: It cannot be written.
        """
        said: dict[str, Any] = {
            "version": _VERSION,
            "run": self.run,
            "pipeline": self.pipeline,
            "definition": self.definition.hex(),
            "secret": self.secret.hex(),
            "fingerprints": self.fingerprints,
            "sequences": self.sequences,
            "partitions": [asdict(each) for _, each in sorted(self.partitions.items())],
            "cuts": sorted(self.cuts.items()),
        }
        _write(self.folder / STAGED_NAME, [json.dumps(said, indent=1).encode()])
        return Staging.read(self.folder)

    @classmethod
    def read(cls, folder: Path) -> Staging:
        """Read what is staged in a folder.

        Raises:
            StopError: Nothing is, or not by this Seqmark.
        """
        path = folder / STAGED_NAME
        try:
            data = path.read_bytes()
            said = json.loads(data)
            if said["version"] != _VERSION:
                raise StopError(f"{path} has version {said['version']}, this Seqmark reads {_VERSION}")
            some = [StagedPartition(**each) for each in said["partitions"]]
            return cls(
                folder,
                str(said["run"]),
                str(said["pipeline"]),
                bytes.fromhex(said["definition"]),
                bytes.fromhex(said["secret"]),
                bool(said["fingerprints"]),
                {each.partition: each for each in some},
                hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest(),
                bool(said.get("sequences")),
                {int(number): int(cut) for number, cut in said.get("cuts", [])},
            )
        except OSError as error:
            raise StopError(f"{folder} has no staged backfill: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise StopError(f"{path} is not what a backfill has staged ({error}): stage it again") from error

    def state(self, number: int, begin: int) -> IdState:
        """Return the state of a partition's ids once its blocks are there, whose worker begins at an offset."""
        part = self.partitions[number]
        # From there on timestamps alone move the clock, until a worker notes something else.
        trace = ClockTrace(begin, part.clock_ms)
        return IdState(self.secret, part.clock_ms, FIRST_NUMBER + part.rows, FIRST_NUMBER, trace, self.run)

    def blocks(self, number: int, after: int = 0) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of a partition's blocks, without the first ``after`` ones; each is checked.

        Raises:
            StopError: The file is cut or corrupt.
        """
        path, staged, first = self.folder / _name(number), self.partitions[number], FIRST_NUMBER
        try:
            with path.open("rb") as file:
                for index in range(staged.blocks):
                    size = file.read(_SIZE.size)
                    block = file.read(_SIZE.unpack(size)[0])
                    key, rows = self._checked(index, first, block)
                    first += rows
                    if index >= after:
                        yield key, block
        except (OSError, struct.error, UnreadableBlockError, CorruptStateError) as error:
            raise StopError(f"{path} cannot be loaded: {error}. Stage the history again") from error
        if first != FIRST_NUMBER + staged.rows:
            what = "scopes" if self.sequences else "ids"
            has = f"{path} has {first - FIRST_NUMBER} {what} and should have {staged.rows}"
            raise StopError(f"{has}. Stage the history again")

    def _checked(self, index: int, first: int, block: bytes) -> tuple[bytes, int]:
        """Return the key that a block is whole under, and how many rows it has."""
        if self.sequences:
            key = brought_key(index)
            return key, open_block(key, block)[1]
        key = id_block_key(first)
        return key, len(decode(block, key, fingerprints=self.fingerprints)[0])


def stage_partition(
    folder: Path, number: int, cut: int, clock_ms: int, rows: IdRows, block_bytes: int = STAGED_BLOCK_BYTES
) -> StagedPartition:
    """Write a partition's blocks, of rows that `remembered_rows` has made; returns what they are."""
    blocks = 0

    def encoded() -> Iterator[bytes]:
        # One at a time: all of them are as much as the ids.
        nonlocal blocks
        clock_ms, at = NEVER, 0
        while at < len(rows):
            most = ids_within(_as_committed(rows.part(at, at + block_bytes // HASH_BYTES)), block_bytes)
            if not most:
                raise ValueError(f"no id goes into a block of {block_bytes} bytes")
            some = _as_committed(rows.part(at, at + most))
            at += len(some)
            clock_ms = max(clock_ms, int(some.reading_ms.max()))
            block, _ = encode(some, clock_ms, id_block_key(some.first))
            blocks += 1
            yield _SIZE.pack(len(block))
            yield block

    _write(folder / _name(number), encoded())
    return StagedPartition(number, cut, clock_ms, len(rows), blocks)


def stage_watermarks(
    folder: Path, number: int, cut: int, scopes: ScopeTable, block_bytes: int = STAGED_BLOCK_BYTES
) -> StagedPartition:
    """Write a partition's blocks, of the scopes that a history has; returns what they are.

    Raises:
        ValueError: A scope does not go into a block.
    """
    parts: list[bytes] = []
    for payload, count in scopes.encode(scopes.all(), block_bytes):
        block = encode_block(brought_key(len(parts) // 2), payload, count)
        parts += [_SIZE.pack(len(block)), block]
    _write(folder / _name(number), parts)
    return StagedPartition(number, cut, NEVER, len(scopes), len(parts) // 2)


def _as_committed(rows: IdRows) -> IdRows:
    """Return rows as a commit has them: ids first, what collided behind them, on as few pages as can be."""
    if not rows.collision.size:
        return rows
    order = np.argsort(rows.collision, kind="stable")
    return IdRows(
        rows.first,
        rows.hash[order],
        rows.owner[order],
        rows.reading_ms[order],
        rows.supersedes[order],
        rows.fingerprint[order],
        rows.collision[order],
    )


def remembered_rows(
    hashes: NDArray[np.uint64],
    reading_ms: NDArray[np.int64],
    clock_ms: int,
    window_ms: int,
    fingerprint: NDArray[np.uint64] = NO_FINGERPRINTS,
) -> IdRows:
    """Return what a worker would remember of records that have passed, once its clock reads ``clock_ms``.

    Args:
        hashes: uint64[n, 2], of their ids, in any order.
        reading_ms: int64[n], what the clock read when each passed.
        clock_ms: After all of them.
        window_ms: What is older is expired, and left out.
        fingerprint: uint64[n], by which several records of one id inside the window are told apart; uint64[0]
            where only ids count: there is one per id.
    """
    alive = np.flatnonzero(reading_ms > clock_ms - window_ms)
    if not fingerprint.size:
        rows = alive[np.argsort(reading_ms[alive], kind="stable")]
        # Where the caller has let go of them, too, this bounds a backfill: about 55 bytes per id.
        del alive
        ids = hashes[rows]
        del hashes
        return _brought(ids, reading_ms[rows])
    # Of one id the earliest first.
    keys = reading_ms[alive], hashes[alive, 1], hashes[alive, 0]
    alive = alive[np.lexsort(keys)]
    ids, reading = hashes[alive], reading_ms[alive]
    begins = np.ones(alive.size, np.bool_)
    begins[1:] = (ids[1:] != ids[:-1]).any(axis=1)
    first = np.flatnonzero(begins)
    counts = np.diff(np.append(first, alive.size))
    variants = np.flatnonzero(np.repeat(counts > 1, counts))
    # An id's first record collides with nobody until the second one has come: there both are written.
    second = np.repeat(reading[np.minimum(first + 1, alive.size - 1)] if alive.size else reading, counts)
    which = np.concatenate((first, variants))
    at = np.concatenate((reading[first], np.maximum(reading, second)[variants]))
    order = np.argsort(at, kind="stable")
    rows = alive[which[order]]
    return _brought(hashes[rows], reading_ms[rows], fingerprint[rows], order >= first.size)


def _brought(
    hashes: NDArray[np.uint64],
    reading_ms: NDArray[np.int64],
    fingerprint: NDArray[np.uint64] = NO_FINGERPRINTS,
    collision: NDArray[np.bool_] = NO_COLLISIONS,
) -> IdRows:
    nobody = np.full(reading_ms.size, BACKFILLED), np.full(reading_ms.size, NONE)
    return IdRows(FIRST_NUMBER, hashes, nobody[0], reading_ms, nobody[1], fingerprint, collision)


def _name(number: int) -> str:
    return f"partition-{number}"


def _write(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file whole or not at all, readable by its owner only."""
    made = path.with_name(f".{path.name}.tmp")
    with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123 - a mode
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)
