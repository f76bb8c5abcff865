"""Values that are nearly JSON, or stand behind five bytes, are judged by their ids and go on byte for byte."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import pytest

from processor.inspection.proposal.choose import propose
from processor.inspection.proposal.observed import observe
from processor.inspection.topic_records import TopicRecord
from processor.ops.metrics import Metrics
from processor.pipeline.failures import Failures
from seqmark.testing import DriverRecord
from tests.simulation.test_driver import driver, pipeline, values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from seqmark.testing import Driver

    Made = Callable[[int], bytes]

BY_ID = 'mode = "insert-id"\nid = [{ from = "value", pointer = "/id" }]\nwindow = "1d"\n'


def with_nan(number: int) -> bytes:
    """Return what json.dumps and ArduinoJson write of a reading that failed."""
    reading = float("nan") if number % 5 == 0 else float("-inf") if number % 7 == 0 else 20.5
    return json.dumps({"id": f"{number:08x}", "temperature": reading}).encode()


def dirty(number: int) -> bytes:
    """Return a text in Latin-1, with a NUL of an embedded client behind it, or behind a byte order mark."""
    text = json.dumps({"id": f"m{number}", "name": "Straße"}, ensure_ascii=False)
    forms = (
        text.encode("latin-1"),
        text.encode() + b"\0",
        b"\xef\xbb\xbf" + text.encode(),
        text.encode() + b"\n",
    )
    return forms[number % 4]


def framed(number: int, schema: int = 12) -> bytes:
    """Return JSON as a serializer with a schema registry writes it."""
    return b"\0" + struct.pack(">I", schema) + json.dumps({"id": f"{number:08x}", "n": number}).encode()


def framed_anew(number: int) -> bytes:
    """Return it as it is sent again when the schema has another version."""
    return framed(number, 13)


def warned(judged: Driver, some: list[bytes], caplog: pytest.LogCaptureFixture) -> str:
    """Judge records as a worker does; return the one line that it warns with."""
    judged.run()
    failures = [Failures(slot.kind.hop.pipeline, Metrics()) for slot in judged._slots.values()]
    for slot, each in zip(judged._slots.values(), failures, strict=True):
        slot.pipeline.failures = each
    judged.produce("raw", [DriverRecord(each) for each in some])
    judged.run()
    for each in failures:
        each.end()
    (line,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    return line


@pytest.mark.parametrize("made", [with_nan, dirty])
def test_strictly_they_are_quarantined_and_the_warning_names_the_key_that_takes_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, made: Made
) -> None:
    strict = driver(tmp_path, pipeline("p", "raw", BY_ID, quarantine="bad"))
    # One is cut, which nothing forgives.
    line = warned(strict, [b"{", *(made(number) for number in range(1, 200))], caplog)
    assert 'json = "lenient" in dedup of the pipeline takes such values' in line
    assert "such as raw:0:" in line
    assert "Straße" not in line
    details = {dict(each.headers)["seqmark.detail"] for each in strict.read("bad")}
    assert sum(b'which json = "lenient" takes' not in (detail or b"") for detail in details) == 1


@pytest.mark.parametrize(
    ("made", "again", "key"),
    [(with_nan, with_nan, 'json = "lenient"'), (dirty, dirty, 'json = "lenient"'),
     (framed, framed_anew, ""), (framed, framed_anew, 'framing = "registry"')],
)  # fmt: skip
def test_with_the_key_copies_are_dropped_and_all_others_keep_their_bytes(
    tmp_path: Path, made: Made, again: Made, key: str
) -> None:
    some = [made(number) for number in range(60)]
    copies = [again(number) for number in range(40, 60)]
    judged = driver(tmp_path, pipeline("p", "raw", f"{BY_ID}{key}\n", duplicates="dropped", quarantine="bad"))
    judged.produce("raw", [DriverRecord(each) for each in [*some, *copies]])
    counts = judged.run()["p"]
    assert (counts["pass"], counts["duplicate"]) == (60, 20)
    assert values(judged, "p.clean") == some


@pytest.mark.parametrize(
    ("made", "json_"),
    [(with_nan, "lenient"), (dirty, "lenient"), (framed, "strict"), (lambda n: framed(n)[5:], "strict")],
)
def test_what_is_proposed_for_them_judges_all_of_them(made: Made, json_: str) -> None:
    some = [made(number) for number in [*range(60), 3, 5]]
    records = [TopicRecord("t", 0, 0, 1_000 + at, False, None, each, []) for at, each in enumerate(some)]
    found = propose(observe(records))
    assert found is not None
    assert found.dedup["id"] == [{"from": "value", "pointer": "/id"}]
    assert found.dedup.get("json", "strict") == json_
    assert ("json" in found.reasons) == (json_ == "lenient")


def test_what_must_stand_behind_five_bytes_and_does_not_is_malformed(tmp_path: Path) -> None:
    rules = f'{BY_ID}framing = "registry"\n'
    judged = driver(tmp_path, pipeline("p", "raw", rules, quarantine="bad"))
    judged.produce(
        "raw", [DriverRecord(each) for each in (framed(1), framed(2)[5:], framed(3)[:4], framed(4)[:5])]
    )
    judged.run()
    codes = [dict(each.headers)["seqmark.error"] for each in judged.read("bad")]
    assert codes == [b"value_malformed", b"value_malformed", b"value_not_json"]
    assert values(judged, "p.clean") == [framed(1)]


def test_without_framing_five_bytes_are_no_json(tmp_path: Path) -> None:
    judged = driver(tmp_path, pipeline("p", "raw", f'{BY_ID}framing = "none"\n', quarantine="bad"))
    judged.produce("raw", [DriverRecord(framed(1))])
    judged.run()
    assert [dict(each.headers)["seqmark.error"] for each in judged.read("bad")] == [b"value_not_json"]


@pytest.mark.parametrize(("route", "where"), [("", "raw"), ('route = "by-id"\n', "app-p-repartition")])
def test_ids_that_collide_above_a_twentieth_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, route: str, where: str
) -> None:
    rules = f'{BY_ID}fingerprint = {{}}\non_collision = "quarantine"\n{route}'
    judged = driver(tmp_path, pipeline("p", "raw", rules, quarantine="bad"))
    line = warned(judged, [b'{"id":"%d","n":%d}' % (at % 90, at) for at in range(100)], caplog)
    assert f"10 of the first 100 records (10 %) are quarantined (id_collision), such as {where}:0:" in line
    assert line.endswith(
        "The id does not tell records apart, or copies differ in what the fingerprint should exclude"
    )
