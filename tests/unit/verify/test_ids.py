"""The comparison finds what is wrong in mode insert-id, and only that, wherever pieces end."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from processor.engine.ids.clock import RecordedClock
from processor.errors import StopError
from schemas.changelog.clock import NO_LIMIT
from tests.support.judges.id_rules import IdRules
from tests.support.verify.compared import compared, details, found, renumber
from tests.support.verify.corruptions import WHEN
from tests.support.verify.id_corruptions import (
    BAD_ID,
    HOUR_MS,
    ID_PLANTED,
    id_pipeline,
    id_stream,
    id_topics,
    of,
)

if TYPE_CHECKING:
    from processor.verify.report import VerifyReport
    from tests.support.kafka.topics import Header
    from tests.support.verify.compared import Topics


def judged(
    topics: Topics, piece: int = 1_000, rules: IdRules | None = None, *limits: tuple[int, int]
) -> VerifyReport:
    """Compare; ``limits`` are what a worker has noted of its clock."""
    rules = rules or IdRules()
    noted = np.array(limits, np.int64).reshape(-1, 2).T
    clock = RecordedClock(*noted, arrival=rules.time == "arrival")
    return compared(topics, piece, pipeline=id_pipeline(rules), clock=clock)


@pytest.mark.parametrize("piece", [1, 100])
@pytest.mark.parametrize("name", ID_PLANTED)
def test_a_planted_corruption_is_found_where_it_is(name: str, piece: int) -> None:
    which, change, expected, text = ID_PLANTED[name]
    topics = id_topics(id_stream())
    records = getattr(topics, which)
    records[:] = change(records)
    renumber(records)

    report = judged(topics, piece)

    assert found(report) == expected, details(report)
    assert text in details(report)


@pytest.mark.parametrize("piece", [1, 2, 3, 100])
def test_what_is_right_is_proved_and_counted(piece: int) -> None:
    report = judged(id_topics(id_stream()), piece)
    assert report.ok, details(report)
    assert (report.source, report.sink, report.duplicates, report.quarantine) == (18, 11, 5, 2)


def test_a_renewed_window_is_proved() -> None:
    rules = IdRules(window="1h", refresh=True)
    stream = [of(b"a", each * (HOUR_MS - 1)) for each in range(5)] + [of(b"a", 6 * HOUR_MS)]
    topics = id_topics(stream, rules)
    assert [len(topics.sink), len(topics.duplicates)] == [2, 4]
    report = judged(topics, 2, rules)
    assert report.ok, details(report)
    # Judged without renewal, what came later than an hour after the first passes.
    assert found(judged(topics, 2, IdRules(window="1h")))[0] == (1, "receipt_wrong")


def test_records_without_an_id_may_pass() -> None:
    rules = IdRules(on_missing="pass")
    topics = id_topics([of(b"a"), BAD_ID, BAD_ID, of(b"a", 5)], rules)
    report = judged(topics, 1, rules)
    assert report.ok, details(report)
    assert (report.sink, report.duplicates) == (3, 1)


def test_a_record_from_the_future_is_believed_as_far_as_the_worker_did() -> None:
    """The worker's clock bounded offset 1 and 2; a million years by their timestamps."""
    now_ms = WHEN - 100
    rules = IdRules(window="1h", max_ahead="1s")
    far = 31_556_952_000_000
    stream = [of(b"a"), of(b"b", far), of(b"c", far), of(b"a", HOUR_MS - 1), of(b"a", HOUR_MS)]
    now = iter([now_ms, now_ms, now_ms + 50, now_ms + HOUR_MS, now_ms + HOUR_MS])
    topics = id_topics(stream, rules, lambda: next(now))
    assert len(topics.duplicates) == 1
    limits = [(1, now_ms + 1_000), (2, now_ms + 1_050), (3, NO_LIMIT)]
    report = judged(topics, 2, rules, *limits)
    assert report.ok, details(report)
    # Without what the worker has noted of it, the future would have come.
    assert (3, "receipt_forged") in found(judged(topics, 2, rules))


def test_where_nothing_says_how_far_records_were_believed_none_may_be_far_ahead() -> None:
    rules = IdRules(window="1h", max_ahead="1s")
    near = [of(b"a", 900), of(b"b", 1_000), of(b"c"), of(b"a", 2_000), of(b"d", 3_000)]
    # A quiet spell, which nothing lies far behind.
    near += [of(b"e", 600_000), of(b"f", 599_000), of(b"a", 600_500)]
    for piece in (1, 2, 100):
        report = compared(id_topics(near, rules), piece, pipeline=id_pipeline(rules))
        assert report.ok, details(report)
    for late in ([*near, of(b"g", 598_999)], [of(b"a", 600_000), *near]):
        at = len(near) if late[0] == near[0] else 1
        for piece in (1, 2, 100):
            with pytest.raises(StopError, match=rf"offset {at} .* whether the worker's clock followed"):
                compared(id_topics(late, rules), piece, pipeline=id_pipeline(rules))


def test_by_arrival_the_clock_is_what_the_worker_read() -> None:
    rules = IdRules(window="1h", time="arrival")
    stream = [of(b"a"), of(b"b", -HOUR_MS), of(b"a", 2 * HOUR_MS), of(b"a"), of(b"b", 1)]
    readings = [5, 6, 7, HOUR_MS + 5, HOUR_MS + 5]
    now = iter(readings)
    topics = id_topics(stream, rules, lambda: next(now))
    assert [len(topics.sink), len(topics.duplicates)] == [3, 2]
    report = judged(topics, 2, rules, *enumerate(readings))
    assert report.ok, details(report)
    late = judged(topics, 2, rules, *enumerate([*readings[:3], HOUR_MS + 4, HOUR_MS + 4]))
    assert sorted(found(late)) == [(3, "duplicate_passed"), (3, "receipt_missing")]


LONG = b"x" * 4_097
LEFT_OUT: tuple[Header, ...] = (("seqmark.key", b"left out"),)


def receipt_of(name: bytes, **other: Any) -> VerifyReport:
    """Compare the receipt of a record that came twice, changed."""
    topics = id_topics([of(name), of(name, 1)])
    topics.duplicates[0] = topics.duplicates[0]._replace(**other)
    return judged(topics)


def with_id(name: bytes, part: object) -> bytes:
    said = json.loads(id_topics([of(name), of(name, 1)]).duplicates[0].value or b"")
    return json.dumps({**said, "id": [part]}).encode()


def digest(name: bytes) -> dict[str, str | int]:
    return {"sha256": hashlib.sha256(name).hexdigest(), "bytes": len(name)}


def test_a_receipt_without_its_key_is_right_where_it_says_so() -> None:
    assert receipt_of(b"a", key=None, headers=LEFT_OUT).ok
    assert found(receipt_of(b"a", key=None)) == [(1, "receipt_wrong")]
    assert found(receipt_of(b"a", headers=LEFT_OUT)) == [(1, "receipt_wrong")]
    wrong = with_id(b"a", "b")
    assert found(receipt_of(b"a", key=None, headers=LEFT_OUT, value=wrong)) == [(1, "receipt_wrong")]


def test_a_receipt_that_never_had_a_key_has_not_lost_it() -> None:
    topics = id_topics([of(b"a")._replace(key=None)] * 2)
    topics.duplicates[0] = topics.duplicates[0]._replace(headers=LEFT_OUT)
    assert found(judged(topics)) == [(1, "receipt_wrong")]


@pytest.mark.parametrize("name", [b"a", LONG, b"\xff" * 5_000, b"\xff"])
def test_a_part_of_an_id_may_be_cut_to_its_digest_and_to_no_other(name: bytes) -> None:
    assert receipt_of(name, value=with_id(name, digest(name))).ok
    for wrong in (digest(name + b"x"), {**digest(name), "bytes": len(name) + 1}, {**digest(name), "more": 1}):
        assert found(receipt_of(name, value=with_id(name, wrong))) == [(1, "receipt_wrong")]


def test_a_receipt_of_a_version_that_cut_nothing_is_right_too() -> None:
    assert receipt_of(LONG, value=with_id(LONG, LONG.decode())).ok
    assert found(receipt_of(LONG, value=with_id(LONG, LONG.decode() + "x"))) == [(1, "receipt_wrong")]
    noise = b"\xff" * 5_000
    written = base64.b64encode(noise).decode()
    assert receipt_of(noise, value=with_id(noise, {"base64": written})).ok
    for wrong in (written[4:], written + "!", 5, None):
        assert found(receipt_of(noise, value=with_id(noise, {"base64": wrong}))) == [(1, "receipt_wrong")]
