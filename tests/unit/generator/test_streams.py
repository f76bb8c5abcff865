"""Does a generated stream contain what it says, and does its truth follow from the rules alone?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from processor.errors import ConfigError
from processor.generator import FAULTS, FORMS, HOUR_MS, RecordKind, StreamOptions, StreamPartition, make_stream
from processor.judges.factory import MODES
from schemas.config import WatermarkDedup
from schemas.events import ClickEvent

START_MS = 1_767_603_600_000


def dedup(form: str = "int64", **more: Any) -> WatermarkDedup:
    source = {"from": "header", "name": "n", "format": form}
    return WatermarkDedup.model_validate({"mode": "watermark", "sequence": source, **more})


def stream(
    records: int = 20_000,
    duplicates: float = 0.05,
    seed: int = 3,
    *,
    partitions: int = 3,
    malformed: float = 0.0,
    form: str = "int64",
) -> list[StreamPartition]:
    options = StreamOptions(records, duplicates, seed, partitions, START_MS, malformed=malformed)
    return make_stream(dedup(form), options)


def everything(parts: list[StreamPartition]) -> list[Any]:
    return [part.records(0, len(part)) for part in parts]


def kinds(parts: list[StreamPartition]) -> np.ndarray[Any, Any]:
    return np.concatenate([part.layout.kind for part in parts])


def test_another_seed_gives_other_records() -> None:
    assert everything(stream(seed=1))[0][0] != everything(stream(seed=2))[0][0]


def test_each_kind_occurs() -> None:
    for part in stream():
        assert set(part.kind.tolist()) == {*RecordKind} - {RecordKind.COLLISION}


def test_late_copies_come_from_far_back_and_the_others_from_just_before() -> None:
    for part in stream(60_000):
        newest = np.maximum.accumulate(part.layout.original)
        back = newest - part.layout.original
        kind = part.layout.kind
        assert back[kind == RecordKind.RESEND].max() < 6
        assert back[kind == RecordKind.TAIL].max() < 400
        assert back[kind == RecordKind.LATE].min() > 1_000


def test_malformed_records_are_quarantined_and_never_pass() -> None:
    parts = stream(malformed=0.001)
    faults = np.concatenate([part.faults for part in parts])
    assert {FAULTS[fault] for fault in faults} == {"", "header_missing", "header_malformed"}
    firsts = (faults > 0) & (kinds(parts) == RecordKind.FIRST)
    assert int(firsts.sum()) == 19  # a thousandth of 19,000 originals
    assert not any((part.passes & (part.faults > 0)).any() for part in parts)


def test_event_times_cover_the_hours_and_run_back_by_little() -> None:
    for part in stream():
        firsts = part.timestamp_ms[part.layout.kind == RecordKind.FIRST]
        assert firsts.min() >= START_MS
        assert firsts.max() < START_MS + 6 * HOUR_MS
        assert np.unique(firsts // HOUR_MS).size == 6
        assert (np.maximum.accumulate(firsts) - firsts).max() <= 1_500


def test_values_are_click_events_of_some_150_bytes() -> None:
    for record in stream(2_000)[0].records(0, 500):
        event = ClickEvent.model_validate_json(record.value or b"")
        assert event.user_id.encode() == record.key
        assert int(event.occurred_at.timestamp() * 1000) == record.timestamp_ms
        assert 130 <= len(record.value or b"") <= 170


def test_sequences_that_do_not_fit_int32_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("processor.generator.scoped._INT32_END", 10_000)
    with pytest.raises(ConfigError, match="do not fit int32"):
        stream(60_000, form="int32")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"sequence": {"from": "value", "pointer": "/page"}}, r"^at\.sequence\.pointer: /page leads into page"),
        ({"epoch": {"from": "value", "pointer": "/user_id/e"}}, r"^at\.epoch\.pointer: /user_id/e leads into"),
        ({"epoch": {"from": "header", "name": "n"}}, r"^at\.epoch\.name: the header n holds another"),
        ({"scope": "header:n"}, r"^at\.sequence\.name: the header n holds another"),
    ],
)
def test_what_no_record_can_carry_is_refused(more: dict[str, Any], message: str) -> None:
    options = StreamOptions(10, 0.1, 1, 1, START_MS)
    with pytest.raises(ConfigError, match=message):
        make_stream(dedup(**more), options, "at")


def test_streams_of_every_mode_can_be_generated() -> None:
    assert set(FORMS) == set(MODES)


@pytest.mark.parametrize("scopes", [0, 100_001])
def test_a_number_of_scopes_that_cannot_be_is_refused(scopes: int) -> None:
    with pytest.raises(ConfigError, match=r"^scopes: must be from 1 to 100,000"):
        StreamOptions(10, 0.1, 1, 1, START_MS, scopes=scopes)


def test_a_stream_begun_by_now_ends_before_now() -> None:
    now_ms = START_MS + 1_234_567
    options = StreamOptions(10, 0.1, 1, 1, 0).ending_by(now_ms)
    assert options.start_ms % HOUR_MS == 0
    assert now_ms - HOUR_MS < options.start_ms + options.span_ms <= now_ms
