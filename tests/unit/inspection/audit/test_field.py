"""The rule that is written for a topic drops its copies and nothing else, or it is said why there is none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from processor.inspection.proposal.toml_text import toml_text
from seqmark import Config
from seqmark.testing import Driver, DriverRecord
from tests.unit.inspection.audit import cases
from tests.unit.inspection.audit.audited import audited, placed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.unit.inspection.audit.cases import Sent

HEAD = """
[kafka]
bootstrap_servers = "nowhere:9092"
[worker]
application_id = "field"
[[pipelines]]
name = "field"
source = "raw"
sink = "clean"
duplicates = "dropped"
quarantine = "bad"
[pipelines.dedup]
"""
RULES: dict[Callable[[], list[Sent]], Sequence[str]] = {
    cases.not_a_number: ("/event_id", "lenient"),
    cases.dirty: ("/id", "lenient"),
    cases.behind_a_schema: ("/event_id",),
    cases.within_a_string: ("/data|/properties/$insert_id",),
    cases.columns: ("'number': 7",),
    cases.counted_by_member: ("/sensor", "/seq"),
    cases.rotated: ("content",),
    cases.wrapped: ("wraps", "16384"),
    cases.changes: ("/source/lsn", "key"),
    cases.spelled_anew: ("/order_id", "uuid"),
    cases.numbered_anew: ("/id", "integer"),
    cases.cloud_events: ("ce_id", "ce_source"),
}
NONE: dict[Callable[[], list[Sent]], str] = {
    cases.arrays: "a JSON array of events",
    cases.lines: "several JSON documents, a line each",
    cases.states: "events or states that repeat",
}


def judged(sent: Sequence[Sent], dedup: dict[str, Any], folder: Path) -> tuple[set[int], int]:
    """Return which of the records a worker drops by a rule, and how many it quarantines."""
    path = folder / "field.toml"
    path.write_text(HEAD + "".join(f"{key} = {toml_text(value)}\n" for key, value in dedup.items()))
    driver = Driver(Config.load(path), partitions=1 + max(each.partition for each in sent))
    key = [None if each.key is None else each.key.encode() for each in sent]
    driver.produce(
        "raw",
        [
            DriverRecord(each.raw, name, each.headers, cases.START_MS + each.at_ms, each.partition)
            for each, name in zip(sent, key, strict=True)
        ],
    )
    driver.run()
    places = {(each.partition, each.offset): n for n, each in enumerate(placed(sent))}
    receipts = [json.loads(each.value or b"") for each in driver.read("dropped")]
    gone = [each for each in receipts if each["verdict"] != "collision"]
    return {places[each["partition"], each["offset"]] for each in gone}, len(driver.read("bad"))


@pytest.mark.parametrize("case", RULES, ids=lambda case: case.__name__)
def test_the_rule_that_is_written_drops_copies_and_nothing_else(
    case: Callable[[], list[Sent]], tmp_path: Path
) -> None:
    sent = case()
    found = audited(sent)
    copies = {n for n, each in enumerate(sent) if each.copies is not None}
    assert found.chosen is not None, found.why_none
    dedup = found.chosen.proposal.dedup
    assert [word for word in RULES[case] if word not in str(dedup)] == []
    assert judged(sent, dedup, tmp_path) == (copies, 0)
    assert (found.copies.count, found.chosen.lost, found.chosen.missed) == (len(copies), 0, 0)


@pytest.mark.parametrize("case", NONE, ids=lambda case: case.__name__)
def test_where_no_rule_fits_it_is_said_why(case: Callable[[], list[Sent]]) -> None:
    found = audited(case())
    assert found.chosen is None
    assert NONE[case] in found.why_none
