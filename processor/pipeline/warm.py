"""Compiles all kernels by working on made-up records: ``python -m processor.pipeline.warm``.

Run when an image is built and at the worker's start, before anything is assigned: nothing may be compiled
inside a commit. There is no list of kernels. The examples that each mode gives are worked on as a slot works,
in memory, with the real decoder, judges and encoder; on the way each partition is restored, from its local
state and from its changelog.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from processor.engine import jit
from processor.engine.batch import fingerprints
from processor.engine.events import warm_events
from processor.engine.ids.window_grid import warm_windows
from processor.engine.jit import COMPILES
from processor.judges.dropped import PassedContents
from processor.judges.escapes.gauge import EscapeGauge
from processor.judges.factory import MODES
from processor.kafka.topics.plan import TopicView, names
from processor.ops.fault_points import disarmed
from processor.ops.metrics import Metrics
from processor.pipeline.hop_kinds import kind_of
from processor.pipeline.hops import hops
from processor.pipeline.ports import OpenPartition, new_position
from processor.pipeline.slot_pipeline import SlotPipeline
from processor.state.changelog import ChangelogBounds
from processor.state.kv.store import MemoryStore
from processor.state.restore import restore
from processor.state.table import Table
from processor.wire.codec import Codec
from processor.wire.decode import PIECE_ROWS, Chunk, Decoder
from processor.wire.encode import Encoder, plain_batch
from schemas.changelog.position import NO_TOPIC, Origin
from schemas.config import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from processor.engine.batch.columns import Columns
    from processor.pipeline.hop_kinds import HopKind
    from processor.wire.encode import EncodedBatch

    _Record = tuple[bytes, bytes | None, int, tuple[tuple[bytes, bytes | None], ...]]

_HOUR_MS = 3_600_000
MANY = PIECE_ROWS + 8
_WARM: set[str] = set()
"""The modes whose kernels this process has."""
LOCK = "compiling"
"""File among the kernels that a process holds locked while it compiles them."""
WAIT_S = 0.5
PARTS = 7
"""Of the work on a hop, as it is shown: a chunk each in most."""


def warm(
    modes: Collection[str] = tuple(MODES), progress: Callable[[int, int], None] = lambda _done, _total: None
) -> None:
    """Compile the kernels that pipelines of these modes use; those of ids take about 20 s to compile.

    ``progress`` is called at the start and after each part of the work: how many are done, how many there are.
    What this process has done before is not done again.
    """
    cold = [mode for mode in MODES if mode in modes and mode not in _WARM]
    if not COMPILES or not cold:
        return
    with disarmed(), _silent("processor.state.restore"):
        asyncio.run(_work([dedup for mode in cold for dedup in MODES[mode].examples], progress))
    _WARM.update(cold)


@contextmanager
def compiling_alone(modes: Collection[str]) -> Iterator[Callable[[], bool]]:
    """Let one process at a time compile the kernels of these modes, and those load them that have waited.

    Yields what says whether it is this one's turn, to be asked until it is. It always is where all kernels are
    kept already, and where none can be. The turn of a process that has died ends with it.
    """
    marks = [f"{mode}-is-warm" for mode in modes]
    missing = [mark for mark in marks if not jit.are_kept(mark)]
    try:
        lock = os.open(jit.FOLDER / LOCK, os.O_RDWR | os.O_CREAT, 0o600) if missing and jit.FOLDER else None
    except OSError:  # a folder that can only be read
        lock = None
    try:
        yield lambda: lock is None or _locked(lock)
        for mark in missing:
            jit.note_kept(mark)
    finally:
        if lock is not None:
            os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def compiled() -> int:
    """Return how many kernels this process has compiled so far, rather than loaded."""
    kernels = {
        id(value): value
        for name, module in sys.modules.copy().items()  # at once: another thread may import
        if name.startswith("processor.engine")
        for value in list(vars(module).values())
        if hasattr(value, "stats") and hasattr(value, "py_func")
    }
    return sum(sum(list(kernel.stats.cache_misses.values())) for kernel in kernels.values())


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Keep a logger from telling what this thread does: the state of made-up records is nobody's."""
    here = threading.get_ident()

    def elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != here

    logger = logging.getLogger(name)
    logger.addFilter(elsewhere)
    try:
        yield
    finally:
        logger.removeFilter(elsewhere)


async def _work(dedups: list[dict[str, Any]], progress: Callable[[int, int], None]) -> None:
    """Work on the same records by each of these configs."""
    sides = "source", "sink", "duplicates", "quarantine"
    # The first of each mode observes: it marks its copies in quarantine, and the others drop and edit.
    observing = {dedup["mode"]: n for n, dedup in reversed(list(enumerate(dedups)))}
    pipelines = [
        {
            "name": f"p{n}",
            **{side: f"{side}{n}" for side in sides},
            "observe": observing[dedup["mode"]] == n,
            "dedup": dedup,
        }
        for n, dedup in enumerate(dedups)
    ]
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": "localhost:9092"},
            "worker": {"application_id": "warm", "state_dir": str(Path.cwd())},
            "pipelines": pipelines,
        }
    )
    limits = TopicView(1, 1, {"max.message.bytes": "1000000"})
    view = dict.fromkeys(names(settings), limits)
    topics = _Memory()
    records, metrics = _records(), Metrics()
    for pipeline in settings.pipelines:
        await topics.send(pipeline.source, 0, records)
    some = hops(settings)
    progress(0, len(some) * PARTS)
    for number, hop in enumerate(some):
        async for share in _hop(kind_of(settings, hop, view), topics, metrics):
            progress(int((number + share) * PARTS), len(some) * PARTS)
    for chunk in topics.chunks(settings.pipelines[0].source):
        _compare(chunk)


def _records() -> list[EncodedBatch]:
    """Return batches of records, with ids and sequences by ``n``.

    In all but the large one each stands twice, and one lacks what it is judged by. The large one has one twice,
    and more than go into a piece, or into what is grown or written in parts. The last one ends the window of
    all before it.
    """
    begin_ms = int(time.time() * 1000) - 100 * _HOUR_MS

    def record(n: int, more: int = 0, at_ms: int = begin_ms) -> _Record:
        name, value = b"%d" % n, b'{"n": %d, "more": "%s"}' % (n, b"x" * more)
        return name, value, at_ms, ((b"n", n.to_bytes(8, "big")), (b"id", name))

    def batch(n: int, codec: Codec, more: int = 0, at_ms: int = begin_ms) -> EncodedBatch:
        return plain_batch([record(n, more, at_ms), record(n, more, at_ms), (b"0", None, at_ms, ())], codec)

    return [
        batch(1, Codec.NONE),
        batch(2, Codec.LZ4),
        batch(3, Codec.ZSTD, 10_000),
        plain_batch([record(n) for n in (4, *range(4, MANY))], Codec.LZ4),
        batch(3, Codec.LZ4),
        batch(MANY, Codec.NONE, at_ms=begin_ms + 9 * _HOUR_MS),
        batch(MANY, Codec.LZ4, at_ms=begin_ms + 9 * _HOUR_MS),
    ]


async def _hop(kind: HopKind, topics: _Memory, metrics: Metrics) -> AsyncIterator[float]:
    """Work on a hop's source; restore twice on the way, from the local state and from the changelog.

    Yields after each chunk the share that is done.
    """
    chunks = topics.chunks(kind.topics.source)
    local = MemoryStore()
    # So small that it grows, and is thinned.
    escapes, passed = EscapeGauge(kind.hop.name, _HOUR_MS, 2**10), PassedContents(2**10)
    for store, some in ((local, chunks[:-2]), (local, chunks[-2:-1]), (MemoryStore(), chunks[-1:])):
        slot = await _slot(kind, topics, metrics, store)
        judge = slot.partitions[0].judge
        judge.sample_for(escapes, 0)
        judge.compare_drops(passed, 0)
        for chunk in some:
            await slot.take(chunk)
            await slot.finish()
            escapes.keep_up()
            yield (chunks.index(chunk) + 1) / len(chunks)


def _compare(chunk: Chunk) -> None:
    """Compare records as a certificate does: an image has its kernels, too."""
    for piece in Decoder().pieces(chunk):
        columns, count = piece.columns, len(piece.columns)
        fingerprints.equal_run(columns, np.arange(count), columns, 0)
        fingerprints.fingerprints(columns, 0, count, np.zeros((2, 2), np.uint64))


async def _slot(kind: HopKind, topics: _Memory, metrics: Metrics, store: MemoryStore) -> SlotPipeline:
    """Return a slot with one partition, restored or new."""
    judge = kind.judge()
    table = Table(store, judge.log)
    position = await restore(table, topics.changelog(kind.topics.changelog), 0, lambda *_: None)
    judge.load(table)
    slot = SlotPipeline(kind, topics, Decoder(), Encoder(), metrics)
    slot.partitions[0] = OpenPartition(
        0,
        table,
        judge,
        position or new_position(0, kind.definition, bytes(range(16)), 1),
        origin=None if position else Origin(0, NO_TOPIC),
    )
    return slot


class _Memory:
    """Topics of one partition; a `TransactionOutput` into them."""

    marker = 0

    def __init__(self) -> None:
        self._batches: dict[str, list[bytes]] = {}
        self._ends: dict[str, int] = {}

    def begin(self) -> None:
        """Do nothing: what is sent is committed."""

    def expect(self, topic: str, partition: int) -> None:
        """Do nothing likewise."""

    async def send(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None:
        """Append batches."""
        for batch in batches:
            end = self.next_offset(topic, partition)
            data = batch.build(-1, -1, -1, transactional=True)
            self._batches.setdefault(topic, []).append(end.to_bytes(8, "big") + data[8:])
            self._ends[topic] = end + batch.count

    async def flush(self) -> None:
        """Do nothing: everything is acknowledged."""

    def next_offset(self, topic: str, partition: int) -> int:
        """Return where a topic ends."""
        del partition
        return self._ends.get(topic, 0)

    async def commit(self, offsets: Mapping[int, int], between: Callable[[], None]) -> None:
        """Do nothing between either."""
        del offsets
        between()

    def chunks(self, topic: str) -> list[Chunk]:
        """Return a chunk per batch."""
        firsts = [int.from_bytes(batch[:8], "big") for batch in self._batches.get(topic, ())]
        return [
            Chunk(topic, 0, at, batch) for at, batch in zip(firsts, self._batches.get(topic, ()), strict=True)
        ]

    def changelog(self, topic: str) -> _Changelog:
        """Return a topic as the restore reads it."""
        return _Changelog(f"{topic}:0", self.chunks(topic), self.next_offset(topic, 0))


class _Changelog:
    """A `processor.state.changelog.Changelog` in memory."""

    def __init__(self, name: str, chunks: list[Chunk], end: int) -> None:
        self.name = name
        self._chunks = chunks
        self._end = end

    async def bounds(self) -> ChangelogBounds:
        """Return its bounds: no transaction is open."""
        return ChangelogBounds(0, self._end, self._end)

    async def read(self, start: int, stop: int) -> AsyncIterator[tuple[list[tuple[bytes, bytes | None]], int]]:
        """Yield keys and values."""
        async for columns, after in self.columns(start, stop):
            yield columns.items(np.arange(len(columns))), after

    async def columns(self, start: int, stop: int) -> AsyncIterator[tuple[Columns, int]]:
        """Yield columns."""
        del stop
        decoder = Decoder()
        for chunk in self._chunks:
            for piece in decoder.pieces(replace(chunk, position=max(start, chunk.position))):
                yield piece.columns, piece.next_offset


def main(modes: Sequence[str]) -> None:
    """Compile the kernels of windows and of some modes; of none: all there are, of events and rows too."""
    from processor.engine.rest import warm_rest  # noqa: PLC0415 - a worker has no use for it

    wanted = [warm_windows] if modes else [warm_windows, warm_events, warm_rest]
    # Beside each other: what they share is compiled twice, in the time of once.
    pool = ProcessPoolExecutor(mp_context=get_context("spawn"))
    with compiling_alone(modes or tuple(MODES)) as is_turn, pool:
        while not is_turn():
            time.sleep(WAIT_S)
        others = [pool.submit(work) for work in wanted]
        list(pool.map(warm, [[mode] for mode in modes or MODES]))
        for each in others:
            each.result()


if __name__ == "__main__":
    main(sys.argv[1:])
