"""What a redrive refuses, what its notes say, and what a certificate says where one does not hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from processor.reset.redrive.work import RedriveChoice
from schemas.redriven import REDRIVEN, SOURCE, RedriveNote, UnknownNoteError, runs_of
from tests.support.redrive import NARROW, World

if TYPE_CHECKING:
    from pathlib import Path

SEQUENCE = {"from": "header", "name": "n", "format": "int64"}
BY_KEY = {"mode": "watermark", "sequence": SEQUENCE, "scope": "key"}
IDS = {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h"}
COLLIDING = {**IDS, "fingerprint": {"of": "bytes"}, "on_collision": "quarantine"}
NOTE = RedriveNote("a:b", 3, 120, 7, 3, 1, ((7, 9), (12, 12)))
LARGE = (b"a", 5, True)


def test_a_note_is_read_as_it_was_written() -> None:
    assert RedriveNote.read(NOTE.value(), NOTE.headers()) == NOTE
    assert json.loads(NOTE.value())["redriven"]["offsets"] == [[7, 9], [12, 12]]
    assert [offset for offset in range(15) if NOTE.names(offset)] == [7, 8, 9, 12]
    assert runs_of([7, 8, 9, 12]) == NOTE.offsets
    assert RedriveNote.read(NOTE.value(), [("own", b""), *NOTE.headers()]) is None


@pytest.mark.parametrize(
    ("value", "version", "why"),
    [
        (NOTE.value(), b"2", "later"),
        (b"{}", b"1", "whole"),
        (None, b"1", "whole"),
        (b'{"redriven":{}}', b"1", "whole"),
    ],
)
def test_a_note_that_cannot_be_read_is_none_to_go_by(value: bytes | None, version: bytes, why: str) -> None:
    with pytest.raises(UnknownNoteError, match=why):
        RedriveNote.read(value, [(REDRIVEN, version), (SOURCE, b"a:0:1")])


def test_pipelines_of_which_nothing_can_be_judged_again_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    pipelines = [
        'quarantine = "q"\nsink = "c0"\noutput = "both"\nverdicts = "v"\n[pipelines.dedup]',
        'sink = "c1"\nobserve = true\n[pipelines.dedup]',
        'quarantine = "q"\nsink = "c2"\n[pipelines.dedup]\nroute = "by-id"',
        'quarantine = "q"\nsink = "c3"\n[pipelines.dedup]',
    ]
    heads = (f'[[pipelines]]\nname = "p{n}"\nsource = "s{n}"\n{keys}\n' for n, keys in enumerate(pipelines))
    rest = 'mode = "insert-id"\nid = [{ from = "key" }]\nwindow = "1h"\n'
    kafka = '[kafka]\nbootstrap_servers = "x:1"\n[worker]\napplication_id = "a"\n'
    path.write_text(kafka + "".join(f"{head}{rest}" for head in heads))

    ended = CliRunner().invoke(main, ["redrive", "-c", str(path)])

    assert ended.exit_code == 2
    for key in ("p0", "output", "p1", "observe", "quarantine", "p2", "route"):
        assert key in ended.stderr
    assert "p3" not in ended.stderr


def test_without_a_window_a_number_below_the_watermark_passes_once() -> None:
    world = World(BY_KEY)
    world.come([LARGE, LARGE, (b"a", 7, False)])

    report = world.redrive()

    assert [each.value for each in world.records("clean")][1:] == [world.records("s")[0].value]
    assert (report.total().passed, report.total().dropped) == (1, 1)
    # Also where its copy comes into quarantine later.
    world.come([LARGE])
    assert world.redrive().total().dropped == 1
    assert world.certified().ok


@pytest.mark.parametrize(
    ("more", "passed", "then"),
    [
        # 12 would lie ahead of 6, which would be late. Which round the second 12 is of nobody knows.
        ({"sequence": SEQUENCE | {"wraps": 16}}, 2, [(b"a", 6, False)]),
        # Each number is an epoch of its own here: 12 would have ended 5.
        ({"epoch": {"from": "header", "name": "n", "order": "change"}}, 1, []),
    ],
)
def test_where_only_their_order_tells_new_from_old_a_redrive_moves_no_state(
    more: dict[str, Any], passed: int, then: list[tuple[bytes, int, bool]]
) -> None:
    world = World(BY_KEY | more)
    world.come([(b"a", 5, False), (b"a", 12, True), (b"a", 12, True)])

    assert world.redrive().total().passed == passed

    world.come([*then, (b"a", 5, False)])
    assert len(world.records("clean")) == 1 + passed + len(then)
    last = json.loads(world.records("receipts")[-1].value or b"")
    assert (last["verdict"], last["watermark"]) == (("late", 6) if then else ("duplicate", 5))
    assert world.certified().ok


def test_a_dry_run_says_the_same_and_writes_nothing() -> None:
    for dedup in (BY_KEY, IDS, {**IDS, "backend": "bloom", "bloom": {"expected_per_bucket": 100}}):
        world = World(dedup)
        world.come([LARGE, LARGE, (None, 1, False), (b"b", 6, True)])
        ends = {tp: log.end for tp, log in world.cluster.logs.items()}
        foreseen = world.redrive(dry=True)
        assert {tp: log.end for tp, log in world.cluster.logs.items()} == ends
        assert foreseen.codes == world.redrive().codes
        assert world.redrive(RedriveChoice("too_large")).total().before == 0


def test_what_would_come_back_into_quarantine_stays_there_and_changes_nothing() -> None:
    world = World(COLLIDING)
    world.come([(b"a", 1, False), (b"a", 2, False), (b"b", 3, True), (b"b", 4, True)])

    report = world.redrive()

    assert {code: (n.before, n.passed, n.after) for code, n in report.codes.items()} == {
        "id_collision": (1, 0, 1),
        "too_large": (2, 1, 1),
    }
    assert world.redrive().total().passed == 0
    assert len(world.records("clean")) == 2


@pytest.mark.parametrize(("topic", "rule"), [("clean", "lost"), ("bad", "not_quarantined")])
def test_a_certificate_wants_what_a_note_names_and_takes_nothing_without_one(topic: str, rule: str) -> None:
    world = World(BY_KEY)
    world.come([(b"a", 1, False), LARGE])
    world.redrive()
    assert world.certified().ok
    log = world.cluster.log(topic, 0)
    # The last batch but the marker: the record in the sink, or the note.
    log._batches.pop(-2)

    found = world.certified()

    assert [each.rule for each in found.violations] == [rule]


def test_what_is_still_too_large_is_counted_and_not_written_again() -> None:
    world = World(BY_KEY)
    world.come([LARGE])
    before = world.records("bad")
    assert world.redrive(limit_bytes=NARROW).total().after == 1
    assert world.records("bad") == before
