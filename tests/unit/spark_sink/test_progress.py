"""Are Spark's reports and failures read for what they are?"""

from __future__ import annotations

import json
import socket

import pytest

from spark_sink.failures import explain
from spark_sink.query import progress as progress_module
from spark_sink.query.checkpoint import PlannedBatch
from spark_sink.query.progress import SinkMetrics, read_progress
from spark_sink.source.spans import SpanPart
from tests.support.kafka.topics import free_port

REPORT = {
    "name": "hourly",
    "batchId": 7,
    "batchDuration": 1500,
    "numInputRows": 30,
    "inputRowsPerSecond": "NaN",
    "processedRowsPerSecond": 20.0,
    "eventTime": {"watermark": "2026-01-05T05:29:00.000Z"},
    "stateOperators": [
        {
            "numRowsTotal": 4,
            "memoryUsedBytes": 100,
            "numRowsDroppedByWatermark": 2,
            "customMetrics": {"rocksdbSstFileSize": 50},
        }
    ],
    "observedMetrics": {"seqmark": {"bad": 3}},
}


def test_a_report_is_read() -> None:
    progress = read_progress(json.dumps(REPORT))
    assert (progress.sink, progress.batch, progress.input_rows, progress.seconds) == ("hourly", 7, 30, 1.5)
    assert (progress.input_rate, progress.processed_rate) == (0.0, 20.0)
    assert progress.watermark_s == 1_767_590_940
    assert (progress.state_rows, progress.state_bytes, progress.state_disk_bytes) == (4, 100, 50)
    assert (progress.dropped_rows, progress.bad) == (2, 3)


def test_what_the_source_has_summed_up_counts_as_its_records() -> None:
    summed = {**REPORT, "observedMetrics": {"seqmark": {"bad": 3, "records": 3000}}}
    progress = read_progress(json.dumps(summed))
    assert (progress.input_rows, progress.processed_rate, progress.bad) == (3000, 2000.0, 3)


def test_parts_that_tell_only_of_bad_records_are_none_where_events_were_late() -> None:
    told = {"partition": 1, "first": 0, "last": 16_383, "bad": 1, "events": 0}
    report = {**REPORT, "observedMetrics": {"seqmark": {"bad": 1, "bad_parts": [told]}}}
    assert read_progress(json.dumps(report)).parts == ()
    report["stateOperators"] = [{"numRowsDroppedByWatermark": 0}]
    assert read_progress(json.dumps(report)).parts == (SpanPart(1, 0, 16_383, None, 1, 0),)


@pytest.mark.parametrize(("bad", "records", "whole"), [(1, 5, True), (2, 5, False), (1, 9, False)])
def test_parts_are_known_where_they_have_all_records_of_the_batch(
    bad: int, records: int, *, whole: bool
) -> None:
    told = {"partition": 1, "first": 0, "last": 9, "oldest": 7, "bad": 1, "events": 4}
    observed = {"bad": bad, "records": records, "parts": [told]}
    found = read_progress(json.dumps({**REPORT, "observedMetrics": {"seqmark": observed}})).parts
    assert found == ((SpanPart(1, 0, 9, 7, 1, 4),) if whole else ())


def test_what_was_not_observed_is_not_known() -> None:
    progress = read_progress(json.dumps({"name": "hourly", "batchId": 0}))
    assert (progress.bad, progress.watermark_s, progress.dropped_rows) == (None, 0.0, 0)


def test_who_connects_to_the_metrics_and_asks_nothing_keeps_no_thread(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_module, "ASK_S", 0.2)
    port = free_port()
    end = SinkMetrics().serve("127.0.0.1", port)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as silent:
        assert silent.recv(1) == b""
    end()
    assert capfd.readouterr() == ("", "")


def test_metrics_show_a_sink_before_its_first_batch_and_count_on() -> None:
    metrics = SinkMetrics()
    metrics.open("hourly")
    value = metrics.registry.get_sample_value
    assert value("seqmark_sink_late_rows_total", {"sink": "hourly"}) == 0
    assert value("seqmark_sink_up", {"sink": "hourly"}) == 0
    assert value("seqmark_sink_last_batch", {"sink": "hourly"}) == -1
    for _ in range(2):
        metrics.take(read_progress(json.dumps(REPORT)))
    assert value("seqmark_sink_rows_total", {"sink": "hourly"}) == 60
    assert value("seqmark_sink_last_batch", {"sink": "hourly"}) == 7


@pytest.mark.parametrize(
    ("start", "end", "empty"),
    [
        ({"t": {"0": 5}}, {"t": {"0": 5}}, True),
        ({"t": {"0": 5}}, {"t": {"0": 6}}, False),
        ({"t": {"0": 5}}, {"t": {"0": 5, "1": 1}}, False),
        ({}, {"t": {"0": 0}}, True),
    ],
)
def test_a_batch_is_empty_when_no_offset_moved(
    start: dict[str, dict[str, int]], end: dict[str, dict[str, int]], *, empty: bool
) -> None:
    batch = PlannedBatch(3, start, end, 9)
    assert batch.empty is empty
    assert PlannedBatch.from_json(json.loads(json.dumps(batch.as_json()))) == batch


PARTS = [
    SpanPart(0, 20, 29, 5, 1, 9),
    SpanPart(2, 7, 7, 9, 0, 1),
    SpanPart(1, 4, 8, 9_000, 0, 5),
    SpanPart(0, 40, 49, None, 1, 0),
]


def test_a_batch_is_narrowed_to_what_may_not_have_been_counted() -> None:
    batch = PlannedBatch(3, {"t": {"0": 25, "1": 4}}, {"t": {"0": 45, "1": 9, "2": 8}}, 9)
    bad = PlannedBatch(3, {"t": {"0": 25}}, {"t": {"0": 45}}, 9)
    both = PlannedBatch(3, {"t": {"0": 25, "2": 7}}, {"t": {"0": 45, "2": 8}}, 9)
    assert batch.narrowed(PARTS, None, late=False) == bad
    assert batch.narrowed(PARTS, None, late=True) == both


@pytest.mark.parametrize("parts", [[], [SpanPart(7, 1, 2, 3, 1, 1)], [SpanPart(1, 9, 12, 3, 1, 1)]])
def test_a_batch_that_has_nothing_of_its_parts_is_not_narrowed(parts: list[SpanPart]) -> None:
    batch = PlannedBatch(3, {"t": {"0": 25, "1": 4}}, {"t": {"0": 45, "1": 9, "2": 8}}, 9)
    assert batch.narrowed(parts, None, late=True) == batch


def test_by_verdicts_a_batch_is_narrowed_to_partitions() -> None:
    places = {"0": 25, "1": 4, "2": 6}
    batch = PlannedBatch(0, {"t": places, "v": places}, {"t": {**places, "0": 99}, "v": places}, 9, ("0", "1"))
    kept = {"0": 25, "2": 6}
    narrowed = PlannedBatch(0, {"t": kept, "v": kept}, {"t": {"0": 99, "2": 6}, "v": kept}, 9, ("0",))
    assert batch.narrowed(PARTS, "v", late=True) == narrowed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x\n\tat a.b\nCaused by: Some data may have been lost because", "--accept-loss"),
        ("[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] x", "the aggregate was changed"),
        ("java.io.IOException: No space left on device", "a disk is full"),
        ("[ARITHMETIC_OVERFLOW] long overflow", "a sum has outgrown its type"),
        ("something new", "the query failed"),
    ],
)
def test_a_failure_is_told_with_what_to_do_and_without_its_stack(text: str, said: str) -> None:
    message = str(
        explain("hourly", "clicks", RuntimeError(f"[STREAM_FAILED] terminated with exception: {text}"))
    )
    assert message.startswith("aggregate hourly: ")
    assert said in message
    assert "\n" not in message


def test_what_an_output_raises_in_a_batch_is_told_in_its_own_words() -> None:
    text = (
        "[STREAM_FAILED] Query terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] Traceback:\n"
        '  File "x.py", line 1\nprocessor.errors.StopError: table t has no column a; add it\n\n SQLSTATE: 39000'
    )
    assert (
        str(explain("hourly", "clicks", RuntimeError(text)))
        == "aggregate hourly: table t has no column a; add it"
    )


@pytest.mark.parametrize(
    "gone",
    [
        "offset 96 of clicks.verdicts:0 is gone",
        "clicks:0: of offsets 9 to 19, 11 records are gone",
        "clicks.verdicts:1 was added, and begins at offset 3",
    ],
)
def test_what_is_gone_is_told_of_its_topic_and_how_to_go_on(gone: str) -> None:
    raised = f"processor.errors.StopError: {gone}: retention has removed what was not read yet"
    text = f"[STREAM_FAILED] Query terminated with exception: [X] x:\n{raised}\n\n SQLSTATE: 38000"

    said = str(explain("hourly", "clicks", RuntimeError(text)))

    assert "seqmark aggregate --accept-loss" in said
    assert "from clicks" not in said
    assert said.endswith(f"({gone})")


def test_where_only_a_task_failed_the_meaning_is_that_of_its_cause() -> None:
    cause, error = RuntimeError(), RuntimeError("[TASK_WRITE_FAILED] Task failed while writing rows to file:/a")
    trace = "x\n\tat a.DisconnectException\nCaused by: java.io.IOException: No space left on device\n"
    vars(cause)["_stackTrace"], vars(error)["_cause"] = trace, cause

    said = str(explain("hourly", "clicks", error))

    assert said.startswith(
        "aggregate hourly: a disk is full. Nothing is counted twice: make room and start again"
    )
    assert "Spark says: [TASK_WRITE_FAILED] Task failed while writing rows" in said
