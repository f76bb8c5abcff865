"""A state that begins with a backfill judges what comes then as one that has judged the history itself."""

from __future__ import annotations

import asyncio
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.extract.parts import KeyPart
from processor.engine.ids.block import decode
from processor.engine.ids.clock import NEVER
from processor.engine.ids.page import BACKFILLED, NO_FINGERPRINTS
from processor.engine.verdict import Verdict
from processor.errors import StopError
from processor.inspection.timeline.held import ChangelogSearch, HeldQuestion
from processor.inspection.timeline.say import _state
from processor.judges.asked_id import asked_ids
from processor.reset.backfill.found import find
from processor.reset.backfill.prepare import HistoryRows, Preparation
from processor.reset.backfill.staging import Staging, remembered_rows, stage_partition
from processor.state.kv.store import MemoryStore
from processor.worker.web.site import _told
from schemas.changelog.backfill import BACKFILL_KEY, BackfillProgress
from schemas.changelog.ids import IDS_KEY
from schemas.changelog.position import Position
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY
from schemas.config import Pipeline
from tests.support.judges.id_state import AHEAD_MS, ORIGIN, STATE, Came, IdPartition
from tests.support.suite.examples import examples

if TYPE_CHECKING:
    from processor.engine.receipts import IdGrounds

RUN = "before"
WINDOW_MS = 1000
# Small blocks, of a few ids: they begin and end everywhere.
BLOCK_BYTES = 150
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f", b"g"])
RECORDS = st.lists(
    st.builds(Came, KEYS, st.integers(0, 4000), st.sampled_from([b"1", b"2", b"3"])), min_size=1, max_size=60
)
DEFINITIONS = st.sampled_from(
    [
        {},
        {"backend": "bloom", "bloom": {"bucket": 400, "expected_per_bucket": 1000}},
        {"fingerprint": {"of": "bytes"}},
        {"fingerprint": {"of": "bytes"}, "on_collision": "drop"},
    ]
)
RENEWED = st.sampled_from([{"refresh": True}, {"refresh": True, "fingerprint": {"of": "bytes"}}])


def exactly(records: list[Came], given: dict[str, Any]) -> list[Came]:
    """Return records at times at which filters forget an id when it expires, and no bucket later."""
    if "bloom" not in given:
        return records
    bucket = given["bloom"]["bucket"]
    return [each._replace(timestamp=each.timestamp // bucket * bucket + bucket - 1) for each in records]


def definition(given: dict[str, Any]) -> dict[str, Any]:
    """Return keys of a definition, which what reads them may change."""
    return {key: dict(value) if isinstance(value, dict) else value for key, value in given.items()}


def staged(folder: Path, whole: IdPartition, history: list[Came], said: IdGrounds, cut: int) -> Staging:
    """Stage what a partition has remembered of a history, and say that it ends before an offset."""
    ids = whole.judge.extract(whole.columns(history)).ids
    times = [min(each.timestamp, whole.now_ms + AHEAD_MS) for each in history]
    readings = np.maximum.accumulate(np.array(times, np.int64))
    kept = said.verdict == Verdict.PASS
    if whole.dedup.on_collision == "pass":
        kept |= said.verdict == Verdict.COLLISION
    clock_ms = int(readings.max(initial=NEVER))
    prints = ids.fingerprint[kept] if ids.fingerprint.size else NO_FINGERPRINTS
    rows = remembered_rows(ids.hash[kept], readings[kept], clock_ms, WINDOW_MS, prints)
    part = stage_partition(folder, 0, cut, clock_ms, rows, BLOCK_BYTES)
    assert whole.judge.log.secret is not None
    secret, fingerprints = whole.judge.log.secret, bool(ids.fingerprint.size)
    return Staging(folder, RUN, "p", bytes(16), secret, fingerprints, {0: part}).write()


def loaded(partition: IdPartition, staging: Staging, *, whole: bool = True) -> None:
    """Write what a load writes into an empty changelog, a block per transaction."""
    begin = [(ORIGIN_KEY, ORIGIN)]
    for number, block in enumerate(staging.blocks(0), 1):
        progress = BackfillProgress(RUN, staging.digest, number, 4)
        partition.changelog.commit([*begin, block, (BACKFILL_KEY, progress.encode())])
        begin = []
    if whole:
        position = Position(staging.partitions[0].cut, 0, 0, bytes(16), STATE, 4)
        state = staging.state(0, staging.partitions[0].cut)
        partition.changelog.commit([*begin, (IDS_KEY, state.encode()), (POSITION_KEY, position.encode())])


@examples(120)
@given(RECORDS, DEFINITIONS, st.data())
def test_backfill_and_worker_are_a_worker_over_all_of_it(
    records: list[Came], given_keys: dict[str, Any], data: st.DataObject
) -> None:
    records = exactly(records, given_keys)
    cut = data.draw(st.integers(0, len(records)), "cut")
    again = data.draw(st.sets(st.integers(0, len(records) - cut), max_size=3), "commits, with restarts")
    whole, other = (IdPartition(**definition(given_keys)) for _ in range(2))
    history, rest = records[:cut], records[cut:]
    before, expected = whole.take(history), whole.take(rest)
    with tempfile.TemporaryDirectory() as folder:
        whole.next_offset = 0
        loaded(other, staged(Path(folder), whole, history, before, cut))
    assert other.open() is not None
    bounds = sorted({0, *again, len(rest)})
    for start, stop in pairwise(bounds):
        said = other.take(rest[start:stop])
        part = slice(start, stop)
        assert said.verdict.tolist() == expected.verdict[part].tolist()
        assert said.expires_ms.tolist() == expected.expires_ms[part].tolist()
        owner = expected.owner[part]
        assert said.owner.tolist() == np.where((owner >= 0) & (owner < cut), BACKFILLED, owner).tolist()
        assert said.backfill == RUN
        other.commit()
        other.open(MemoryStore() if stop in again else None)


@examples(80)
@given(RECORDS, DEFINITIONS | RENEWED, st.data())
def test_a_history_is_folded_to_what_a_worker_remembers_in_whatever_order_it_comes(
    records: list[Came], given_keys: dict[str, Any], data: st.DataObject
) -> None:
    records = exactly(records, given_keys)
    history, rest = records[: len(records) // 2], records[len(records) // 2 :]
    whole, other = (IdPartition(**definition(given_keys)) for _ in range(2))
    latest_ms = 3199
    whole.now_ms = other.now_ms = latest_ms - AHEAD_MS
    ids = whole.judge.extract(whole.columns(history)).ids
    times = np.minimum(np.array([each.timestamp for each in history], np.int64), latest_ms)
    prints = ids.fingerprint if ids.fingerprint.size else np.zeros(len(history), np.uint64)
    order = np.lexsort((prints.view(np.int64), ids.hash[:, 1], ids.hash[:, 0], times))
    whole.take([history[n] for n in order])
    expected = whole.take(rest)

    shuffled = np.array(data.draw(st.permutations(range(len(history)))), np.int64)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(history)), max_size=3)))
    assert whole.judge.log.secret is not None
    with tempfile.TemporaryDirectory() as folder:
        fingerprints = bool(ids.fingerprint.size)
        empty = Staging(Path(folder), RUN, "p", bytes(16), whole.judge.log.secret, fingerprints, {})
        keep = whole.dedup.on_collision == "pass"
        renewed = whole.dedup.refresh
        work = Preparation(
            empty, {0: len(history)}, WINDOW_MS, latest_ms, keep_collisions=keep, renewed=renewed
        )
        for start, stop in pairwise([0, *cuts, len(history)]):
            some = shuffled[start:stop]
            own = np.array([each.timestamp for each in history], np.int64)[some]
            work.take(HistoryRows(np.zeros_like(some), ids.hash[some], own, prints[some]))
        loaded(other, work.stage())
        assert work.taken == {0: len(history)}
        assert {path.name for path in Path(folder).iterdir()} == {"backfill.json", "partition-0"}
    assert other.open() is not None
    assert other.judge.clock_ms == (times.max() if history else None)
    said = other.take(rest)
    assert said.verdict.tolist() == expected.verdict.tolist()
    assert said.expires_ms.tolist() == expected.expires_ms.tolist()


def test_a_row_of_a_partition_that_there_is_not_is_refused(tmp_path: Path) -> None:
    work = Preparation(Staging(tmp_path, RUN, "p", bytes(16), bytes(16), False, {}), {0: 0}, 1, 1)
    for number in (-1, 1):
        rows = HistoryRows(np.full(1, number), np.full((1, 2), 2**64 - 1, np.uint64), np.zeros(1, np.int64))
        with pytest.raises(ValueError, match=f"there is no partition {number}"):
            work.take(rows)


HISTORY = [Came(b"%d" % each, 1000 + each) for each in range(20)]


def begun(folder: Path, *, whole: bool) -> tuple[IdPartition, Staging]:
    """Return a partition with twenty ids of a history, the whole backfill or only its blocks."""
    judging, partition = IdPartition(), IdPartition()
    said = judging.take(HISTORY)
    judging.next_offset = 0
    staging = staged(folder, judging, HISTORY, said, 0)
    loaded(partition, staging, whole=whole)
    return partition, staging


def test_a_backfill_that_is_not_whole_is_refused_by_its_name_and_found_by_who_goes_on(tmp_path: Path) -> None:
    partition, staging = begun(tmp_path, whole=False)
    with pytest.raises(StopError, match=r"p-changelog:0: its state is backfill before, which is not loaded"):
        partition.open()
    changelog = partition.changelog
    found = asyncio.run(find(changelog, asyncio.run(changelog.bounds()), "a", "p"))
    assert found.position is None
    assert found.progress == BackfillProgress(RUN, staging.digest, staging.partitions[0].blocks, 4)


def test_a_state_that_began_with_a_backfill_says_so_after_every_commit_and_a_reset(tmp_path: Path) -> None:
    partition, _ = begun(tmp_path, whole=True)
    partition.open()
    partition.take([Came(b"new", 2000)])
    partition.commit()
    partition.open(MemoryStore())
    assert partition.judge.log.backfill == RUN
    partition.open()
    assert partition.judge.log.backfill == RUN, "from the local state, too"
    found = asyncio.run(find(partition.changelog, asyncio.run(partition.changelog.bounds()), "a", "p"))
    assert (found.backfill, found.progress) == (RUN, None)


def test_what_the_state_holds_of_a_backfill_has_no_place_in_the_source(tmp_path: Path) -> None:
    partition, staging = begun(tmp_path, whole=True)
    partition.open()
    (asked,) = asked_ids([KeyPart()], ["7"])
    pipeline = Pipeline.model_construct(name="p", source="raw", sink="clean", dedup=partition.dedup)
    search = ChangelogSearch(HeldQuestion(pipeline, (asked,)), staging.secret)
    for row in partition.changelog.rows:
        if row is not None:
            search.take(*row)
    held = search.result(0)
    assert [(each.owner, each.reading_ms) for each in held.records] == [(None, 1007)]
    assert "holds it, by a record that a backfill has brought" in "".join(_state([held], ambiguous=False))
    ((record,),) = partition.judge.remembered([asked])
    assert _told(record, WINDOW_MS, lambda _: {"offset": -2})["owner"] is None


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_load_goes_on_behind_the_blocks_that_are_there(tmp_path: Path, after: int) -> None:
    _, staging = begun(tmp_path, whole=False)
    blocks = list(staging.blocks(0))
    assert len(blocks) > 3
    assert list(staging.blocks(0, after)) == blocks[after:]


@pytest.mark.parametrize(
    ("at", "message"), [(4, "fails its checksum"), (-9, "fails its checksum"), (0, "cut|unpack|checksum")]
)
def test_a_staged_file_that_is_not_whole_is_refused_by_name(tmp_path: Path, at: int, message: str) -> None:
    _, staging = begun(tmp_path, whole=False)
    path = tmp_path / "partition-0"
    data = bytearray(path.read_bytes())
    data[at + 20] ^= 1
    path.write_bytes(data if at else data[:30])
    with pytest.raises(
        StopError, match=rf"partition-0 cannot be loaded: .*({message}).*Stage the history again"
    ):
        list(staging.blocks(0))


def test_a_folder_without_a_whole_staging_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StopError, match="has no staged backfill"):
        Staging.read(tmp_path)
    begun(tmp_path, whole=False)
    said = (tmp_path / "backfill.json").read_text()
    for text in (said[:-9], said.replace('"version": 1', '"version": 2'), said.replace("cut", "kut"), "[]"):
        (tmp_path / "backfill.json").write_text(text)
        with pytest.raises(StopError, match=r"stage it again|version 2"):
            Staging.read(tmp_path)


def test_who_may_not_read_the_secret_may_not_read_what_is_staged(tmp_path: Path) -> None:
    begun(tmp_path, whole=False)
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


@pytest.mark.parametrize(("renewed", "readings", "expired"), [(True, [900, 1500], 0), (False, [1500], 1)])
def test_an_id_that_copies_renew_is_remembered_by_its_last_one(
    tmp_path: Path, *, renewed: bool, readings: list[int], expired: int
) -> None:
    empty = Staging(tmp_path, RUN, "p", bytes(16), bytes(16), False, {})
    work = Preparation(empty, {0: 0}, WINDOW_MS, 3000, renewed=renewed)
    hashes = np.array([[2, 1], [4, 1], [2, 1]], np.uint64)
    work.take(HistoryRows(np.zeros(3, np.int64), hashes, np.array([900, 1500, 0])))

    staging = work.stage()

    rows = [decode(block, key)[0] for key, block in staging.blocks(0)]
    assert [reading for each in rows for reading in each.reading_ms.tolist()] == readings
    assert (work.taken, work.expired) == ({0: 3}, {0: expired})
