"""What is recommended follows from what was simulated; the config that is written has it, and no secret."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter

from processor.commands.cli import main
from processor.config.load import load
from processor.inspection.simulate.costs import id_costs
from processor.inspection.simulate.forecast import (
    Forecast,
    IdForecast,
    JudgedCounts,
    JudgingWay,
    ReorderRow,
    ScopeOutcome,
    SequenceForecast,
    SharedPart,
    Simulation,
)
from processor.inspection.simulate.grid import costs_of, grid
from processor.inspection.simulate.recommend import Recommendation, knee, recommend
from processor.inspection.simulate.show import fields, plot, sentences, tables
from processor.inspection.simulate.windows import Estimate, WindowPrediction
from processor.inspection.simulate.written import recommended_text
from schemas.config.dedup import InsertIdDedup, WatermarkDedup

if TYPE_CHECKING:
    from pathlib import Path

HOUR, DAY = 3_600_000, 86_400_000
HEADER = {"from": "header", "name": "id"}


def row(window_ms: int, caught: float, copies: float = 1_000, held: float = 1e6) -> WindowPrediction:
    def counted(number: float) -> Estimate:
        return Estimate(number, number, number)

    return WindowPrediction(window_ms, *map(counted, (caught, copies - caught, 0, held)))


ROWS = [row(HOUR, 700), row(DAY, 999.5), row(7 * DAY, 1_000)]


def by_ids(
    rows: list[WindowPrediction] = ROWS,
    crossing: float = 0,
    faulty: int = 0,
    name: str = "configured",
    **dedup: Any,
) -> IdForecast:
    table = {"mode": "insert-id", "id": [HEADER], "window": "1h", **dedup}
    way = JudgingWay(name, TypeAdapter(InsertIdDedup).validate_python(table), "as the config has it")
    judged = JudgedCounts(100_000, {"field_missing": faulty} if faulty else {}, 0, 10 * DAY)
    better = [row(each.window_ms, each.caught.value + crossing, 1_000 + crossing) for each in rows]
    apart, together = (ScopeOutcome(each, each[-1], each) for each in (rows, better))
    return IdForecast(
        way, judged, 1.0, True, (4, 8), apart, together, rows, crossing, True, SharedPart(100_000, faulty)
    )


def recommended(*forecasts: Forecast, changing: list[str] | None = None) -> Recommendation:
    found = Simulation("clicks", "clicks.raw", 4, list(forecasts), changing=changing or [])
    return recommend(found, 100)


def test_the_shortest_window_that_catches_nearly_all_is_recommended() -> None:
    assert recommended(by_ids()).dedup["window"] == "1d"


def test_without_copies_the_configured_window_stays() -> None:
    nothing = [row(each.window_ms, 0, 0) for each in ROWS]

    assert recommended(by_ids(nothing, window="7d")).dedup["window"] == "7d"


def test_a_route_is_recommended_where_copies_come_in_other_partitions() -> None:
    assert "route" not in recommended(by_ids(crossing=5)).dedup
    assert recommended(by_ids(crossing=500)).dedup["route"] == "by-id"


def test_filters_are_named_with_what_they_lose_where_ids_take_gigabytes() -> None:
    many = [row(each.window_ms, each.caught.value, held=2e8) for each in ROWS]

    found = recommended(by_ids(many))

    assert "backend" not in found.dedup
    assert found.cost.backend == "exact"
    assert any("backend bloom would take" in reason and "by mistake" in reason for reason in found.reasons)
    assert not any("would take" in reason for reason in recommended(by_ids(many, fingerprint={})).reasons)
    assert not any("would take" in reason for reason in recommended(by_ids()).reasons)


def test_another_way_is_recommended_where_many_records_cannot_be_judged_as_configured() -> None:
    other = by_ids(id=[{"from": "key"}], name="proposed")

    assert recommended(by_ids(), other).dedup["id"] == [HEADER]
    assert recommended(by_ids(faulty=50_000), other).dedup["id"] == [{"from": "key"}]


def by_sequence(rows: list[ReorderRow], scope: str = "partition") -> SequenceForecast:
    table = {"mode": "watermark", "scope": scope, "sequence": {"from": "header", "name": "seq"}}
    dedup = TypeAdapter(WatermarkDedup).validate_python(table)
    way = JudgingWay("configured" if scope == "partition" else "compared", dedup, "")
    shared = SharedPart(1_000, 0, max(row.passed for row in rows))
    return SequenceForecast(
        way, JudgedCounts(1_000, {}), rows, 0 if scope == "partition" else 50, False, (), shared
    )


LATE = [ReorderRow(0, 900, 50, 50, new=45), ReorderRow(64, 940, 60, 0), ReorderRow(1_024, 940, 60, 0)]


def test_the_shortest_reorder_window_that_loses_no_record_is_recommended() -> None:
    found = recommended(by_sequence(LATE))

    assert found.dedup["reorder_window"] == 64
    assert "40 records came late" in found.reasons[0]


@pytest.mark.parametrize(("passing", "scope"), [(945, None), (990, "key")])
def test_another_scope_is_recommended_where_the_configured_one_loses_clearly_more(
    passing: int, scope: str | None
) -> None:
    found = recommended(by_sequence(LATE), by_sequence([ReorderRow(0, passing, 10, 0)], "key"))

    assert found.dedup.get("scope") == (scope or "partition")


def test_the_grid_has_a_row_per_scope_window_and_backend_and_marks_the_configured_one() -> None:
    rows = list(grid(by_ids(backend="bloom", window="1d"), 100))

    assert [(row.scope, row.window, row.cost.backend) for row in rows] == [
        (scope, window, backend)
        for scope in ("partition", "by-id")
        for window in (HOUR, DAY, 7 * DAY)
        for backend in ("exact", "bloom")
    ]
    [configured] = [row for row in rows if row.configured]
    assert (configured.scope, configured.window, configured.cost.backend) == ("partition", DAY, "bloom")
    assert not any(row.cost.backend == "bloom" for row in grid(by_ids(fingerprint={}), 100))


def test_the_grid_has_what_filters_catch_in_their_rows() -> None:
    more = [row(each.window_ms, each.caught.value + 7, 2_000) for each in ROWS]
    forecast = by_ids()
    forecast = replace(forecast, apart=forecast.apart._replace(filtered=more))

    caught = {
        (each.window, each.cost.backend): each.caught.value
        for each in grid(forecast, 100)
        if each.scope == "partition"
    }

    for each in ROWS:
        exact, filters = (caught[each.window_ms, name] for name in ("exact", "bloom"))
        assert exact == each.caught.value == filters - 7


def test_the_grid_of_sequences_says_how_many_dropped_records_are_new() -> None:
    rows = [
        (row.window, row.late, row.lost_late, row.held.value) for row in grid(by_sequence(LATE, "key"), 100)
    ]

    assert rows == [(0, 50, 45, 50), (64, 0, 0, 50), (1_024, 0, 0, 50)]


@pytest.mark.parametrize("backend", range(2))
def test_every_cost_grows_with_the_window_and_a_route_costs_more(backend: int) -> None:
    forecast = by_ids()

    short, long = (
        costs_of(forecast, row(each, 1, held=each), 100, routed=False)[backend] for each in (HOUR, DAY)
    )
    routed = costs_of(forecast, row(HOUR, 1, held=HOUR), 100, routed=True)[backend]

    for name in ("memory_bytes", "disk_bytes", "changelog_bytes", "restart_s", "rebuild_s"):
        assert getattr(short, name) < getattr(long, name), name
    assert short.cpu_us < routed.cpu_us
    assert (short.changelog_bytes < routed.changelog_bytes) == (backend < 1)  # a filter has no owners


def test_the_knee_is_where_the_curve_bends() -> None:
    curve = [row(10**n * 1_000, caught) for n, caught in enumerate((0, 10, 950, 970, 1_000))]

    assert knee(curve) == curve[2]
    assert knee([row(HOUR, 5), row(DAY, 5), row(7 * DAY, 5)]) is None
    assert next(line for line in plot(curve) if "knee" in line).split()[-4:] == ["95.00", "%", "<-", "knee"]


def test_costs_grow_with_ids_and_the_filters_take_what_the_page_on_sizing_says() -> None:
    dedup: InsertIdDedup = TypeAdapter(InsertIdDedup).validate_python(
        {"mode": "insert-id", "id": [HEADER], "window": "7d"}
    )

    exact, bloom = id_costs(dedup, 1e8, 0, 7 * DAY, 0, 1e9, routed=False)

    assert exact.memory_bytes == 25e8
    assert 5.5e8 < bloom.memory_bytes < 9e8
    assert bloom.memory_bytes < exact.memory_bytes
    assert bloom.lost == pytest.approx(1)


def test_tables_sentences_and_json_say_that_nothing_was_estimated() -> None:
    forecast = by_ids(crossing=500)

    assert [each.name for each in tables(forecast, 100)] == [
        "ids per partition",
        "what they take, ids per partition",
        'ids with route = "by-id"',
        'what they take, ids with route = "by-id"',
    ]
    assert all(each.rows[0][2] == "exact" for each in list(tables(forecast, 100))[:1])
    assert not any("estimated" in each for each in sentences(forecast))
    assert fields(forecast, 100)["windows"][0]["configured"]


CONFIG = """
[kafka]
bootstrap_servers = "localhost:9092"
security_protocol = "SASL_PLAINTEXT"
sasl_mechanism = "PLAIN"
sasl_plain_username = "me"
sasl_plain_password = "hidden word"

[worker]
application_id = "clicks"

[[pipelines]]
name = "other"
source = "other.raw"
sink = "other.clean"
[pipelines.dedup]
mode = "watermark"
sequence = { from = "header", name = "se\\"q" }

[[pipelines]]
name = "clicks"
source = "clicks.raw"
sink = "clicks.clean"
[pipelines.dedup]
mode = "insert-id"
id = [{ from = "key" }]
window = "1h"
"""


def test_what_is_written_loads_has_what_is_recommended_and_no_secret(tmp_path: Path) -> None:
    given, written = tmp_path / "given.toml", tmp_path / "written.toml"
    given.write_text(CONFIG)

    text = recommended_text(given, load(given, {}), {"clicks": recommended(by_ids())})

    assert "hidden word" not in text
    written.write_text(text)
    settings = load(written, {"SEQMARK_KAFKA__SASL_PLAIN_PASSWORD": "hidden word"})
    before = load(given, {})
    assert settings.kafka == before.kafka
    assert settings.pipelines[0] == before.pipelines[0]
    assert settings.pipelines[1].dedup == by_ids(window="1d").dedup
    assert "# SEQMARK" not in text.splitlines()[0]


def test_a_name_of_the_environment_finds_the_recommendation_of_its_pipeline(tmp_path: Path) -> None:
    given, written = tmp_path / "given.toml", tmp_path / "written.toml"
    given.write_text(CONFIG.replace('name = "clicks"\n', ""))
    environment = {"SEQMARK_PIPELINES__1__NAME": "clicks", "SEQMARK_KAFKA__SASL_PLAIN_PASSWORD": "hidden word"}

    written.write_text(recommended_text(given, load(given, environment), {"clicks": recommended(by_ids())}))

    assert load(written, environment).pipelines[1].dedup == by_ids(window="1d").dedup


NOWHERE = """
[kafka]
bootstrap_servers = "localhost:1"

[worker]
application_id = "clicks"

""" + CONFIG[CONFIG.rindex("[[pipelines]]") :]


@pytest.mark.parametrize(
    ("options", "environment", "reason"),
    [
        (["--html", "c.toml"], {}, "is the config already"),
        (["--write", "c.toml", "--force"], {}, "is the config already"),
        (["--html", "a", "--write", "./a"], {}, "is what --html writes already"),
        (["--html", "no/a.html"], {}, "there is no folder no"),
        (["--write", "b.toml"], {"SEQMARK_PIPELINES__0__DEDUP__WINDOW": "2h"}, "would be stronger"),
        (
            ["--write", "b.toml"],
            {
                "SEQMARK_PIPELINES__1__NAME": "more",
                "SEQMARK_PIPELINES__1__SOURCE": "more.raw",
                "SEQMARK_PIPELINES__1__SINK": "more.clean",
                "SEQMARK_PIPELINES__1__DEDUP__MODE": "insert-id",
                "SEQMARK_PIPELINES__1__DEDUP__ID__0__FROM": "key",
                "SEQMARK_PIPELINES__1__DEDUP__WINDOW": "1h",
            },
            "would be stronger",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    environment: dict[str, str],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text(NOWHERE)

    ended = CliRunner(env=environment).invoke(main, ["simulate", "-c", "c.toml", *options])

    assert ended.exit_code == 2, ended.output
    assert reason in " ".join(ended.stderr.split())
    assert (tmp_path / "c.toml").read_text() == NOWHERE
