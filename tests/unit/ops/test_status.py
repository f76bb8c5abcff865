"""The status says what the metrics say, with rates and estimates that follow from two looks at them."""

from __future__ import annotations

import json
import logging
import math
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from processor.ops import status_text
from processor.ops.logs import JsonFormatter
from processor.ops.metrics import CONTACT_S, Contact, Doing, Metrics, State
from processor.ops.status import HANGS_S, StateSeries, Status, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.ops.status import StatusLine

WINDOW_S = 5.0


class Case:
    """A worker's metrics with one pipeline ``p``, and a clock that is set by hand."""

    def __init__(self, *, drain: bool = False, pipelines: tuple[str, ...] = ("p",)) -> None:
        self.metrics = Metrics()
        self.status = Status(self.metrics, pipelines, 100.0, WINDOW_S, drain=drain)

    def assign(self, partitions: int, *, ready: bool = False) -> None:
        self.metrics.assigned.labels("p").set(partitions)
        self.metrics.ready.set(int(ready))

    def count(self, **verdicts: int) -> None:
        for verdict, number in verdicts.items():
            self.metrics.records.labels("p", verdict.removesuffix("_")).inc(number)

    def look(self, now_s: float) -> StatusLine:
        return self.status.look(now_s)[0]

    def working(self, *lags: int) -> None:
        """Have so many partitions at work, each at position 1,000 with a lag."""
        self.assign(len(lags), ready=True)
        for partition, lag in enumerate(lags):
            self.metrics.begin("p", partition, 1_000, 1_000 + lag)

    def at(self, position: int, lag: int, partition: int = 0) -> None:
        self.metrics.position.labels("p", str(partition)).set(position)
        self.metrics.lag.labels("p", str(partition)).set(lag)


def test_a_worker_that_has_not_joined_is_starting_and_one_that_lost_all_is_rebalancing() -> None:
    case = Case()
    assert case.look(101).state == "starting"
    case.working(0)
    assert case.look(102).state == "ready"
    case.assign(0)
    case.metrics.forget("p", 0)
    assert case.look(103).state == "rebalancing"
    case.assign(0, ready=True)
    assert case.look(104).state == "standing by"


def test_restoring_shows_the_mean_over_all_that_is_assigned() -> None:
    case = Case()
    case.assign(4)
    case.metrics.restore_ratio.labels("p", "0").set(1.0)
    case.metrics.restore_ratio.labels("p", "1").set(0.72)
    line = case.look(101)
    assert (line.state, line.ready) == ("restoring", 1)
    assert line.restored == pytest.approx(0.43)
    assert "restoring 43 %, 1 of 4 partitions" in status_text.text(line)


def silent(metrics: Metrics) -> None:
    now_s = [0.0]
    metrics.contact = Contact(lambda: now_s[0])
    metrics.contact.asked(["the leader of raw:0"])
    now_s[0] = CONTACT_S + 1


OBSTACLES: dict[State, Callable[[Metrics], None]] = {
    State.NO_CONTACT: silent,
    State.WAITING: lambda metrics: setattr(metrics, "held_up", lambda _: State.WAITING),
    State.RETRYING: lambda metrics: setattr(metrics, "held_up", lambda _: State.RETRYING),
    State.RESTORING: lambda metrics: metrics.restore_ratio.labels("p", "0").set(0.5),
    State.THROTTLED: lambda metrics: metrics.throttled_until_s.update(p=110.0),
    State.HELD_BACK: lambda metrics: metrics.open_seconds.labels("p", "0").set(HANGS_S),
}


@pytest.mark.parametrize("state", OBSTACLES)
def test_whatever_keeps_records_from_being_judged_has_one_name_everywhere(state: State) -> None:
    case = Case()
    case.working(7)
    OBSTACLES[state](case.metrics)
    line = case.look(101)
    registry = CollectorRegistry()
    registry.register(StateSeries(case.status, lambda: 101))
    series = {
        each: registry.get_sample_value("seqmark_state", {"pipeline": "p", "state": each}) for each in State
    }

    assert line.state is state
    assert status_text.fields(line)["state"] == state
    assert status_text.text(line).startswith(f"p: {state}")
    assert series == {each: each is state for each in State}
    assert {type(value) for value in series.values()} == {float}  # a collector takes no other number
    assert (line.lag is None) == (state is State.NO_CONTACT)  # what was seen last says nothing of now


def test_what_a_worker_does_before_it_joins_is_its_state() -> None:
    case = Case()
    case.metrics.doing = Doing("compiling kernels", 1, 2, State.COMPILING)
    assert case.look(101).state is State.COMPILING
    case.working(0)
    assert case.look(102).state is State.READY


def test_contact_is_lost_with_the_oldest_question_that_has_no_answer() -> None:
    now_s = 100.0
    contact = Contact(lambda: now_s)
    assert (contact.silent_s, contact.lost) == (0, False)
    contact.asked(["the leader of raw:0", "the leader of raw:1"])
    now_s = 120.0
    contact.answered("the leader of raw:1")
    contact.asked(["the leader of raw:0", "the leader of raw:1"])  # to ask again makes it no younger
    assert contact.silent_s == 20
    now_s = 131.0
    assert contact.lost
    assert contact.words().endswith("UTC from the leader of raw:0")
    now_s = 151.0
    contact.answered("the leader of raw:0")
    assert (contact.silent_s, contact.lost) == (31, True)
    contact.forget(["the leader of raw:1"])
    assert not contact.lost


def test_nobody_owes_an_answer_while_a_quota_mutes_him() -> None:
    now_s = 100.0
    contact = Contact(lambda: now_s, {"p": 150.0})
    contact.asked(["the leader of raw:0"])
    now_s = 170.0
    assert (contact.silent_s, contact.lost) == (20, False)
    now_s = 181.0
    assert contact.lost


def test_where_nobody_answers_that_is_what_is_said() -> None:
    now_s = 100.0
    contact = Contact(lambda: now_s)
    contact.answered("the group's coordinator")
    contact.asked([f"the leader of raw:{number}" for number in range(9)])
    now_s = 140.0
    assert contact.words().startswith("no broker has answered since ")


def test_rates_are_those_of_the_window_not_of_the_whole_run() -> None:
    case = Case()
    case.working(0)
    case.count(pass_=1_000_000)
    case.look(104)
    case.look(105)
    case.count(pass_=900, duplicate=60, late=30, quarantine=10)
    line = case.look(110)
    assert (line.records_per_s, line.passed_per_s) == (200, 180)
    assert line.reading.records == 1_001_000


@pytest.mark.parametrize(
    ("before", "after", "records", "seconds", "said"),
    [
        (1_000, 0, 10, 0.0, "lag 0;"),
        (3_000, 1_000, 2_000, 2.5, "lag 1,000, done in 2 s;"),  # 2,000 in 5 s
        (1_000, 1_000, 10, math.inf, "lag 1,000, not shrinking;"),
        (1_000, 1_500, 10, math.inf, "lag 1,500, not shrinking;"),
        (100, 200, 5_000, 0.2, "lag 200;"),  # what is on its way at 1,000 a second
    ],
)
def test_the_time_to_catch_up_is_by_how_fast_the_lag_shrinks(
    before: int, after: int, records: int, seconds: float, said: str
) -> None:
    case = Case()
    case.working(before, 0)
    case.look(105)
    case.look(106)
    case.count(pass_=records)
    case.at(2_000, after)
    line = case.look(111)
    assert (line.lag, line.catch_up_s) == (after, seconds)
    assert said in status_text.text(line)


def test_no_estimate_compares_different_partitions() -> None:
    case = Case()
    case.look(101)
    case.working(5_000)
    line = case.look(106)
    assert (line.lag, line.catch_up_s) == (5_000, None)
    assert "lag 5,000;" in status_text.text(line)


def test_a_drain_shows_the_share_of_what_was_there_at_first() -> None:
    case = Case(drain=True)
    case.working(300, 100)
    assert case.look(101).drained == 0
    case.at(1_200, 100)
    case.at(1_100, 0, 1)
    line = case.look(102)
    assert (line.state, line.drained) == ("draining", 0.75)
    assert "draining 75 %, 2 of 2 partitions" in status_text.text(line)
    case.at(5_000, 700)  # what came later is not part of it
    assert case.look(103).drained == 1


def test_a_drain_with_nothing_to_do_is_done() -> None:
    case = Case(drain=True)
    case.working(0)
    assert case.look(101).drained == 1


def test_a_commit_shows_what_it_took_and_how_long_ago_it_was_when_there_are_none() -> None:
    case = Case()
    case.working(0)
    assert "commit" not in status_text.text(case.look(101))
    for seconds in (0.1, 0.3):
        case.metrics.commit_seconds.labels("p").observe(seconds)
    line = case.look(102)
    assert line.commit_s == pytest.approx(0.2)
    assert line.quiet_s == 0
    assert "commit 200 ms" in status_text.text(line)
    case.look(107)
    line = case.look(175)
    assert (line.commit_s, line.quiet_s) == (None, 73)
    assert "commit 1 min 13 s ago" in status_text.text(line)


def test_scopes_and_their_memory_are_summed() -> None:
    case = Case()
    case.working(0, 0)
    for partition in "01":
        case.metrics.scopes.labels("p", partition).set(1_500)
        case.metrics.state_bytes.labels("p", partition).set(1_000_000)
    assert status_text.text(case.look(101)).endswith("; 3,000 scopes, 2.0 MB")


def test_a_pipeline_of_ids_shows_ids_and_no_scopes() -> None:
    case = Case(pipelines=("p", "q"))
    case.working(0, 0)
    for partition in ("0", "1"):
        case.metrics.ids.labels("p", partition).set(0)
    assert status_text.text(case.look(101)).endswith("; 0 ids, 0 B")
    for partition in ("0", "1"):
        case.metrics.ids.labels("p", partition).set(1_500_000)
        case.metrics.state_bytes.labels("p", partition).set(24_000_000)
    line, other = case.status.look(102)
    assert status_text.text(line).endswith("; 3,000,000 ids, 48.0 MB")
    said = status_text.fields(line)
    assert (said["ids"], "scopes" in said) == (3_000_000, False)
    assert (status_text.fields(other)["scopes"], "ids" in status_text.fields(other)) == (0, False)
    titles, row, _ = status_text.table([line, other], 200)
    assert titles.index("scopes, ids") + len("scopes, ids") == row.index("3.00M ids") + len("3.00M ids")


def test_a_pipeline_with_a_fingerprint_shows_collisions_from_the_start() -> None:
    case = Case()
    case.metrics.expect("p", ["id_collision"], collisions=True)
    assert "late 0 (0.0 %), collision 0 (0.0 %), quarantined" in status_text.text(case.look(101))
    case.count(pass_=96, collision=4)
    line = case.look(106)
    assert "100 records: duplicate 0 (0.0 %), late 0 (0.0 %), collision 4 (4.0 %), quar" in status_text.text(
        line
    )
    assert status_text.fields(line)["collision"] == 4
    ((text, _),) = status_text.totals(case.status.end(172.0))
    assert "late 0 (0.0 %), collision 4 (4.0 %), quarantined 0 (0.0 %)" in text


def test_the_table_has_collisions_where_a_pipeline_can_have_some() -> None:
    case = Case(pipelines=("p", "q"))
    titles, *rows = status_text.table(case.status.look(101), 1_000)
    assert "collision" not in titles
    case.metrics.expect("p", [], collisions=True)
    case.count(pass_=96, collision=4)
    titles, *rows = status_text.table(case.status.look(102), 1_000)
    end = titles.index("collision") + len("collision")
    assert [row[end - 11 : end].strip() for row in rows] == ["4 4.0 %", "-"]


def test_each_pipeline_has_its_own_numbers() -> None:
    case = Case(pipelines=("p", "q"))
    case.metrics.records.labels("q", "late").inc(10)
    p, q = case.status.look(110)
    assert (p.pipeline, p.reading.records, q.pipeline, q.reading.counts["late"]) == ("p", 0, "q", 10)


def test_a_line_of_the_log_says_it_all() -> None:
    case = Case()
    case.working(3_000)
    case.look(105)
    case.look(106)
    case.count(pass_=9_500, duplicate=400, late=90, quarantine=10)
    case.metrics.commit_seconds.labels("p").observe(0.05)
    case.at(2_000, 60_000)
    assert status_text.text(case.look(111)) == (
        "p: ready, 1 of 1 partition; 2,000 records/s, 1,900 passed/s; 10,000 records: duplicate 400 (4.0 %), "
        "late 90 (0.9 %), quarantined 10 (0.1 %); lag 60,000, not shrinking; commit 50 ms; 0 scopes, 0 B"
    )


def test_fields_are_the_same_numbers_and_what_is_not_known_is_left_out() -> None:
    case = Case()
    case.working(3_000)
    case.look(105)
    case.count(pass_=95, duplicate=5)
    found = status_text.fields(case.look(110))
    assert found == {
        "pipeline": "p",
        "state": "ready",
        "partitions": 1,
        "partitions_ready": 1,
        "records_per_s": 20.0,
        "passed_per_s": 19.0,
        "records": 100,
        "passed": 95,
        "duplicate": 5,
        "late": 0,
        "quarantined": 0,
        "lag_records": 3_000,
        "scopes": 0,
        "state_bytes": 0,
    }


def test_totals_need_no_partitions() -> None:
    case = Case()
    case.count(pass_=950, duplicate=40, late=10)
    ((text, found),) = status_text.totals(case.status.end(172.0))
    assert text == (
        "p: in all 1,000 records in 1 min 12 s: passed 950 (95.0 %), duplicate 40 (4.0 %), late 10 (1.0 %), "
        "quarantined 0 (0.0 %)"
    )
    assert (found["state"], found["records"], found["seconds"]) == ("ended", 1_000, 72.0)


def test_a_narrow_window_does_without_the_least_columns_and_keeps_the_others_in_line() -> None:
    case = Case()
    case.metrics.expect("p", [], collisions=True)
    case.working(0)
    line = case.look(101)
    whole = status_text.table([line], 1_000)
    assert [title in whole[0] for title in status_text.TITLES] == [True] * len(status_text.TITLES)
    gone: list[str] = []
    for width in range(len(whole[0]), 0, -1):
        rows = status_text.table([line], width)
        assert len(rows[0]) == len(rows[1])
        assert len(rows[0]) <= width or len(gone) == 4
        gone += [title for title in status_text.TITLES if title not in rows[0] and title not in gone]
    assert gone == ["state size", "scopes, ids", "commit", "passed/s"]


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0"), (999, "999"), (1_000, "1.00k"), (53_149, "53.1k"), (999_900, "1.00M"), (1.27e6, "1.27M")],
)
def test_numbers_are_short(number: float, said: str) -> None:
    assert status_text.short(number) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59.6, "1 min 0 s"), (72, "1 min 12 s"), (11_100, "3 h 5 min"), (187_200, "2 d 4 h")],
)
def test_durations_have_two_units(seconds: float, said: str) -> None:
    assert status_text.duration(seconds) == said


def test_a_line_of_json_has_the_fields_beside_the_message() -> None:
    extra: dict[str, Any] = {"fields": {"pipeline": "p", "records": 5}}
    record = logging.makeLogRecord({"name": "n", "levelname": "INFO", "msg": "text", **extra})
    line = json.loads(JsonFormatter().format(record))
    assert (line["message"], line["pipeline"], line["records"]) == ("text", "p", 5)


def test_what_is_done_before_the_start_has_a_bar_where_its_length_is_known() -> None:
    assert status_text.doing(Doing("looking at the topics")) == "looking at the topics"
    assert status_text.doing(Doing("compiling", 7, 28)) == f"compiling  {'━' * 6}{'─' * 18}  7 of 28"


def test_what_the_page_shows_is_the_sum_or_the_worst_of_all_partitions() -> None:
    metrics = Metrics()
    metrics.source_partitions.labels("p").set(12)
    for partition, rate, held_s in (("0", 0.003, 2.0), ("1", 0.001, 7.0)):
        metrics.false_positive_rate.labels("p", partition).set(rate)
        metrics.open_seconds.labels("p", partition).set(held_s)
    metrics.quarantined.labels("p", "header_missing").inc(3)
    metrics.quarantined.labels("p", "id_too_long")
    metrics.transactions_aborted.labels("p", "fenced").inc(2)
    metrics.transactions_aborted.labels("p", "failed").inc()
    metrics.records_expired.labels("p").inc(5)
    metrics.records_expired.labels("other").inc()

    found, idle = map(read(metrics, ["p", "idle"], 1.0).readings.__getitem__, ("p", "idle"))

    assert (found.source_partitions, found.false_positive_rate, found.held_s) == (12, 0.003, 7.0)
    assert (found.codes, found.expired, found.aborted) == ({"header_missing": 3}, 5, 3)
    assert (idle.source_partitions, idle.false_positive_rate, idle.held_s) == (0, None, 0.0)
    assert (idle.codes, idle.expired, idle.aborted, idle.ids) == ({}, 0, 0, None)
