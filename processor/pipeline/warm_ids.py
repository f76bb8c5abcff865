"""Are all kernels of mode insert-id compiled?

Beside `processor.pipeline.warm`: they take some 20 s to compile, and a worker of mode watermark needs none.
"""

from __future__ import annotations

import numpy as np

from processor.engine.batch.columns import Columns
from processor.engine.extract.ids import HeaderPart, IdExtractor, Ids, KeyPart, Part, ValuePart
from processor.engine.id_receipts import IdGrounds, IdReceiptText, id_lists
from processor.engine.id_receipts import encode as encode_receipts
from processor.engine.ids import clock
from processor.engine.ids.block import confirm, decode, encode
from processor.engine.ids.bloom import sorted_run
from processor.engine.ids.bloom.memtable import Memtable
from processor.engine.ids.bloom.run_index import RunIndex
from processor.engine.ids.bloom.sorted_run import RunWriter
from processor.engine.ids.bloom.window import BloomLookup, BloomWindow
from processor.engine.ids.exact.index import ExactIndex
from processor.engine.repartition import encode as encode_routed
from processor.engine.repartition import share_out, take_off, targets

KEY = bytes(9)


def warm_ids() -> None:
    """Call every kernel once with the argument types that the worker uses."""
    parts: list[Part] = [HeaderPart(b"id"), KeyPart(), ValuePart("/id")]
    columns = Columns.empty(0, np.zeros(64, np.uint8))
    found = IdExtractor(parts, bytes(16)).extract(columns)
    rows = np.zeros(0, np.int64)
    grounds, lists = IdGrounds(found.fault, found, rows, rows), id_lists(columns.data, found, rows)
    encode_receipts(IdReceiptText(b"{}", b"{}"), columns, rows, grounds, lists, 0, np.zeros(1, np.uint8))
    _route(columns, found)
    readings = clock.by_records(0, np.zeros(2, np.int64), np.zeros(2, np.uint8), 0, 0).reading_ms
    none, fault = np.zeros((1, 2), np.int64), np.zeros(2, np.uint8)
    ids = Ids(np.eye(2, dtype=np.uint64), fault, fault.astype(np.bool_), fault[None], none, none)
    _exact(ids, readings)
    _bloom(ids, readings)


def _route(columns: Columns, ids: Ids) -> None:
    """Route no record."""
    rows, _ = share_out(targets(ids, ids.fault, 0, 1), 0, 0, 1)
    encode_routed(columns, rows, columns.offset, 0, np.zeros(1, np.uint8))
    take_off(columns)


def _exact(ids: Ids, readings: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """Judge two ids twice, write them down, forget them and take them over."""
    index = ExactIndex(1, refresh=True, bucket_bits=1)
    pages: list[bytes] = []
    for _ in range(2):
        wanted = index.look_up(ids, readings)
        found = confirm(pages if wanted.page.size else [], wanted.page, wanted.which, wanted.at)
        index.judge(ids, readings, readings, wanted, found)
        index.drop()
        index.judge(ids, readings, readings, wanted, found)
        rows = index.staged()
        if len(rows):
            block, where = encode(rows, 0, KEY)
            pages = [block[where.at[0] :]]
            index.commit(where, 0, 1)
            restored = ExactIndex(1, refresh=True, bucket_bits=1)
            read, _, where = decode(block, KEY)
            restored.restore(read, where)
            restored.pour()
            ExactIndex(1, refresh=True).restore_pages(pages, where.first)


def _bloom(ids: Ids, readings: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """Judge two ids twice, and outgrow the table of staged ones."""
    window = BloomWindow(1, 1, 1, 0.1)
    known = BloomLookup(ids.unjudged, readings, readings)
    for _ in range(2):
        window.judge(ids, readings, readings, window.look_up(ids, readings), known)
        window.commit(0)
    window.reserve(100_000)
    table = Memtable(0)
    table.put(ids.hash, readings, readings)
    table.find(ids.hash, np.arange(2), ids.unjudged.copy(), readings.copy(), readings.copy())
    writer = RunWriter(0, 0, *table.by_hash())
    pages = [page for _, page in writer.pages(2)]
    run = writer.finish()
    shelf = RunIndex()
    shelf.add(run)
    _, page = shelf.find(ids.hash, np.ones(2, np.int64))
    sorted_run.find(pages, run.starts, page, ids.hash)
