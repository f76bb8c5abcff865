"""A state that begins with sequences of a history judges what comes then as one that has judged the history."""

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

from processor.engine.verdict import Verdict
from processor.errors import StopError
from processor.inspection.timeline.held import ChangelogSearch, HeldQuestion
from processor.reset.backfill.fold import SequenceRows, WatermarkPreparation
from processor.reset.backfill.found import find
from processor.reset.backfill.staging import Staging
from processor.state.changelog import read_brought
from processor.state.kv.store import MemoryStore
from schemas.changelog.backfill import BACKFILL_KEY, BackfillProgress
from schemas.changelog.position import Origin, Position
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY, CorruptStateError
from schemas.changelog.watermark import ScopeValue, watermark_key
from schemas.config import Pipeline
from tests.support.judges.id_state import STATE
from tests.support.judges.rules import EPOCH_HEADER, Model, Rules, scope_of
from tests.support.judges.scopes import columns_of
from tests.support.judges.sequence_state import SequencePartition, columns
from tests.support.kafka.topics import New, Record, int64
from tests.support.suite.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.judges.watermark import SequenceEvidence
    from tests.support.judges.rules import Said

RUN = "before"
# Small blocks, of a scope or a few: the largest has a window of 16 bytes and a name of 9.
BLOCK_BYTES = 150
RULES = [
    Rules(scope=scope, epoch=epoch, reorder_window=window)
    for scope in ("partition", "key", "header:id")
    for epoch in (None, EPOCH_HEADER)
    for window in (0, 5, 100)
]
NAMES = st.sampled_from([b"", b"a", b"123456789"])


def came(name: bytes, sequence: int, epoch: int) -> New:
    headers = (("id", name), ("epoch", epoch.to_bytes(4, "big", signed=True)), ("seq", int64(sequence)))
    return New(name, b"v", headers, 0)


RECORDS = st.lists(
    st.builds(came, NAMES, st.integers(0, 20), st.sampled_from([0, 1])), min_size=20, max_size=60
)


def rows_of(partition: SequencePartition, some: Sequence[New]) -> SequenceRows:
    """Return rows of a history as a command hands them on."""
    evidence: SequenceEvidence = partition.judge_of().extract(columns(some))
    zero = np.zeros(len(some), np.int64)
    if evidence.scope is None:
        return SequenceRows(zero, evidence.sequence)
    epoch = zero[:0] if evidence.epoch is None else evidence.epoch
    evidence.data.setflags(write=False)
    return SequenceRows(zero, evidence.sequence, epoch, evidence.data, *evidence.scope)


def staged(
    folder: Path, partition: SequencePartition, history: Sequence[New], cuts: Sequence[int] = ()
) -> Staging:
    empty = Staging(folder, RUN, "p", bytes(16), bytes(16), fingerprints=False, partitions={})
    work = WatermarkPreparation(empty, {0: len(history)}, partition.dedup)
    for start, stop in pairwise([0, *cuts, len(history)]):
        work.take(rows_of(partition, history[start:stop]))
    return work.stage(BLOCK_BYTES)


def loaded(partition: SequencePartition, staging: Staging, *, whole: bool = True) -> None:
    """Write what a load writes into a changelog, a block per transaction."""
    begun = Origin(staging.partitions[0].cut, 0, backfill=RUN).encode()
    partition.changelog.commit([(ORIGIN_KEY, begun), (BACKFILL_KEY, progress(staging, 0))])
    for number, block in enumerate(staging.blocks(0), 1):
        partition.changelog.commit([block, (BACKFILL_KEY, progress(staging, number))])
    if whole:
        position = Position(staging.partitions[0].cut, 0, 0, bytes(16), STATE, 4)
        partition.changelog.commit([(POSITION_KEY, position.encode())])


def progress(staging: Staging, blocks: int) -> bytes:
    return BackfillProgress(RUN, staging.digest, blocks, 4).encode()


def judged(model: Model, some: Sequence[New]) -> list[Said]:
    return [model.judge(Record(0, 0, *each, True)) for each in some]


def said(verdicts: Sequence[int]) -> list[str]:
    names = {Verdict.PASS: "pass", Verdict.DUPLICATE: "duplicate", Verdict.LATE: "late"}
    return [names[Verdict(each)] for each in verdicts]


def brought_drops(rules: Rules, history: Sequence[New], rest: Sequence[New]) -> int:
    """Count what is dropped by a watermark that stands as the history has left it."""
    begun, model, count = Model(rules), Model(rules), 0
    judged(begun, history)
    judged(model, history)
    for each in rest:
        name = scope_of(Record(0, 0, *each, True), rules.scope)
        left, stands = (model.scopes.get(name) for model in (begun, model))
        same = left and stands and (left.watermark, left.epoch) == (stands.watermark, stands.epoch)
        (verdict,) = judged(model, [each])
        count += verdict.verdict != "pass" and bool(same)
    return count


@examples(80)
@given(RECORDS, st.sampled_from(RULES), st.data())
def test_backfill_and_worker_are_a_worker_over_all_of_it(
    records: list[New], rules: Rules, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(records)), "cut")
    history, rest = records[:cut], records[cut:]
    shuffled = data.draw(st.permutations(history), "the history in any order")
    calls = sorted(data.draw(st.lists(st.integers(0, cut), max_size=2), "in several calls"))
    commits = st.dictionaries(st.integers(0, len(rest)), st.booleans(), max_size=4)
    again = data.draw(commits, "commits, with restarts, without the local state or with it")
    model = Model(rules)
    judged(model, history)
    expected = judged(model, rest)

    partition = SequencePartition(rules)
    with tempfile.TemporaryDirectory() as folder:
        loaded(partition, staged(Path(folder), partition, shuffled, calls))
    assert partition.open() is not None
    for start, stop in pairwise(sorted({0, *again, len(rest)})):
        grounds: Any = partition.take(rest[start:stop])
        assert said(grounds.verdict) == [each.verdict for each in expected[start:stop]]
        assert grounds.watermark.tolist() == [each.watermark or 0 for each in expected[start:stop]]
        partition.commit()
        partition.open(MemoryStore() if again.get(stop) else None)

    # A certificate begins with the same, and counts what is dropped by that alone.
    limits = asyncio.run(partition.changelog.bounds())
    proof = partition.judge_of()
    proof.begin_with(asyncio.run(read_brought(partition.changelog, limits.start, limits.stable)))
    assert said(proof.judge(proof.extract(columns(rest))).verdict.tolist()) == [
        each.verdict for each in expected
    ]
    assert proof.take_brought() == brought_drops(rules, history, rest)
    assert proof.take_brought() == 0


HISTORY = [came(b"%d" % each, each, 0) for each in range(20)]
BY_KEY = Rules(scope="key", epoch=EPOCH_HEADER, reorder_window=100)


def begun(folder: Path, rules: Rules = BY_KEY, *, whole: bool) -> tuple[SequencePartition, Staging]:
    partition = SequencePartition(rules)
    staging = staged(folder, partition, HISTORY)
    loaded(partition, staging, whole=whole)
    return partition, staging


@pytest.mark.parametrize("rules", [Rules(), BY_KEY], ids=["partition", "key"])
def test_a_backfill_that_is_not_whole_is_refused_by_its_name_and_found_by_who_goes_on(
    tmp_path: Path, rules: Rules
) -> None:
    partition, staging = begun(tmp_path, rules, whole=False)
    with pytest.raises(StopError, match=r"p-changelog:0: its state is backfill before, which is not loaded"):
        partition.open()
    changelog = partition.changelog
    found = asyncio.run(find(changelog, asyncio.run(changelog.bounds()), "a", "p", sequences=True))
    assert found.position is None
    assert found.progress == BackfillProgress(RUN, staging.digest, staging.partitions[0].blocks, 4)


def test_a_state_says_with_which_backfill_it_began_however_far_it_has_come(tmp_path: Path) -> None:
    partition, _ = begun(tmp_path, whole=True)
    partition.open()
    for number in range(40):
        partition.take([came(b"new", number, 0)])
        partition.commit()
    limits = asyncio.run(partition.changelog.bounds())
    found = asyncio.run(find(partition.changelog, limits, "a", "p", sequences=True))
    assert (found.backfill, found.progress) == (RUN, None)
    # What an earlier state began with is forgotten with it.
    partition.changelog.commit([(ORIGIN_KEY, Origin(0, 0).encode())])
    limits = asyncio.run(partition.changelog.bounds())
    assert asyncio.run(read_brought(partition.changelog, limits.start, limits.stable)) == []


def test_what_has_changed_since_stands_above_what_a_backfill_has_brought_though_it_is_read_at_once(
    tmp_path: Path,
) -> None:
    partition = SequencePartition(Rules(scope="key"))
    blocks = list(staged(tmp_path, partition, HISTORY).blocks(0))
    key = watermark_key(b"7")
    other = BACKFILL_KEY, b"not looked at here"
    judge = partition.judge_of()
    found, _ = columns_of([*blocks, (key, ScopeValue(90).encode(key)), other])
    assert judge.log.apply(found) == [other]
    marks = [judge.scope_mark(b"%d" % each) for each in (6, 7)]
    assert [each and each.sequence for each in marks] == [6, 90]


def test_a_history_is_known_from_the_changelog_and_from_the_local_state_with_its_epochs(tmp_path: Path) -> None:
    partition = SequencePartition(BY_KEY)
    loaded(partition, staged(tmp_path, partition, [came(b"a", 7, 0), came(b"a", 3, 1), *HISTORY]))
    assert held(partition, b"a") == (3, 1)
    assert held(partition, b"nobody") == (None, None)
    for _ in range(2):
        partition.open()
        assert set(said(partition.take(HISTORY).verdict.tolist())) == {"duplicate"}
        assert said(partition.take([came(b"a", 3, 1), came(b"a", 8, 0)]).verdict.tolist()) == [
            "duplicate",
            "late",
        ]
        partition.commit()


def held(partition: SequencePartition, scope: bytes) -> tuple[int | None, int | None]:
    """Return watermark and epoch of a scope by the changelog alone."""
    pipeline = Pipeline.model_construct(name="p", source="raw", sink="clean", dedup=partition.dedup)
    search = ChangelogSearch(HeldQuestion(pipeline, scope=scope), None)
    for row in partition.changelog.rows:
        if row is not None:
            search.take(*row)
    found = search.result(0)
    return found.watermark, found.epoch


def test_blocks_of_another_definition_or_that_are_cut_are_refused(tmp_path: Path) -> None:
    partition, staging = begun(tmp_path, whole=False)
    blocks = list(staging.blocks(0))
    assert len(blocks) > 3
    other = SequencePartition(Rules(scope="key")).judge_of()
    with pytest.raises(CorruptStateError, match="written under another epoch or reorder_window"):
        other.begin_with(blocks)
    with pytest.raises(CorruptStateError, match="fails its checksum"):
        partition.judge_of().begin_with([(blocks[0][0], blocks[1][1])])
    only = SequencePartition(Rules()).judge_of()
    (tmp_path / "scopes").mkdir()
    of_scopes = staged(tmp_path / "scopes", SequencePartition(Rules(scope="key")), HISTORY[:2])
    with pytest.raises(CorruptStateError, match="has scopes, and there is one sequence per partition"):
        only.begin_with(of_scopes.blocks(0))
    path = tmp_path / "partition-0"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StopError, match=r"partition-0 cannot be loaded: .* Stage the history again"):
        list(staging.blocks(0))


def test_a_row_of_a_partition_that_there_is_not_is_refused(tmp_path: Path) -> None:
    empty = Staging(tmp_path, RUN, "p", bytes(16), bytes(16), fingerprints=False, partitions={})
    work = WatermarkPreparation(empty, {0: 0}, SequencePartition(Rules()).dedup)
    for number in (-1, 1):
        with pytest.raises(ValueError, match=f"there is no partition {number}"):
            work.take(SequenceRows(np.full(1, number), np.zeros(1, np.int64)))
