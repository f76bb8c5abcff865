"""File and environment come together, and every mistake says where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from processor.config.load import load, require_pipelines, require_provable
from processor.errors import ConfigError
from schemas.config import HeaderSource, Settings, WatermarkDedup

CLICKS = (Path(__file__).parents[3] / "examples" / "clicks.toml").read_text(encoding="utf-8")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "clicks.toml"
    path.write_text(CLICKS, encoding="utf-8")
    return path


def refused(path: Path, environ: dict[str, str] | None = None) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        load(path, environ or {})
    return {problem.key: problem.message for problem in caught.value.problems}


def test_the_environment_overrides_the_file(file: Path) -> None:
    settings = load(
        file,
        {
            "SEQMARK_KAFKA__BOOTSTRAP_SERVERS": "broker:19092",
            "SEQMARK_WORKER__WEB_PORT": "0",
            "SEQMARK_WORKER__CREATE_TOPICS": "false",
            "SEQMARK_PIPELINES__0__SOURCE": "other.raw",
            "SEQMARK_PIPELINES__0__DEDUP__SEQUENCE__NAME": "number",
        },
    )
    assert settings.kafka.bootstrap_servers == "broker:19092"
    assert (settings.worker.web_port, settings.worker.create_topics) == (0, False)
    assert settings.pipelines[0].source == "other.raw"
    assert settings.pipelines[0].sink == "clicks.clean"
    dedup = settings.pipelines[0].dedup
    assert isinstance(dedup, WatermarkDedup)
    assert dedup.sequence == HeaderSource(**{"from": "header"}, name="number", format="int64")


def test_the_environment_alone_is_enough_for_a_table(tmp_path: Path) -> None:
    path = tmp_path / "no-kafka.toml"
    path.write_text(CLICKS[CLICKS.index("[worker]") :], encoding="utf-8")
    assert "kafka" in refused(path)
    settings = load(path, {"SEQMARK_KAFKA__BOOTSTRAP_SERVERS": "b:1"})
    assert settings.kafka.bootstrap_servers == "b:1"


@pytest.mark.parametrize(
    "text",
    [
        '{ from = "header", name = "n", format = "text" }',
        '{"from": "header", "name": "n", "format": "text"}',
    ],
)
def test_a_table_is_given_as_toml_or_json(file: Path, text: str) -> None:
    settings = load(file, {"SEQMARK_PIPELINES__0__DEDUP__SEQUENCE": text})
    dedup = settings.pipelines[0].dedup
    assert isinstance(dedup, WatermarkDedup)
    assert isinstance(dedup.sequence, HeaderSource)
    assert (dedup.sequence.name, dedup.sequence.format) == ("n", "text")


def test_a_single_key_overrides_the_variable_of_its_table(file: Path) -> None:
    table = "SEQMARK_PIPELINES__0__DEDUP__SEQUENCE"
    settings = load(file, {f"{table}__NAME": "inner", table: '{from="header", name="outer"}'})
    dedup = settings.pipelines[0].dedup
    assert isinstance(dedup, WatermarkDedup)
    assert isinstance(dedup.sequence, HeaderSource)
    assert dedup.sequence.name == "inner"


def test_the_next_index_adds_an_element(file: Path) -> None:
    dedup = '{mode="watermark", sequence={from="header", name="n"}}'
    added = {"NAME": "b", "SOURCE": "b.raw", "SINK": "b.clean", "DEDUP": dedup}
    settings = load(file, {f"SEQMARK_PIPELINES__1__{key}": text for key, text in added.items()})
    assert [pipeline.name for pipeline in settings.pipelines] == ["clicks", "b"]


def test_an_index_beyond_the_next_is_an_error(file: Path) -> None:
    with pytest.raises(ConfigError, match="next index is 1") as caught:
        load(file, {"SEQMARK_PIPELINES__7__NAME": "b"})
    assert "environment variable SEQMARK_PIPELINES__7__NAME: pipelines.7.name: " in str(caught.value)


def test_an_empty_variable_takes_an_optional_key_away(file: Path) -> None:
    settings = load(file, {"SEQMARK_PIPELINES__0__QUARANTINE": ""})
    assert settings.pipelines[0].quarantine is None
    assert "worker.application_id" in refused(file, {"SEQMARK_WORKER__APPLICATION_ID": ""})


@pytest.mark.parametrize(
    "name",
    ["SEQMARK_TEST_SPEED", "SEQMARK_FAULT_STEP", "SEQMARK_BROKER", "SEQMARK_BROKER_START_TIMEOUT", "X"],
)
def test_reserved_and_foreign_variables_are_left_alone(file: Path, name: str) -> None:
    assert load(file, {name: "whatever"}).worker.application_id == "clicks"


def test_unknown_keys_suggest_the_nearest_known_one(file: Path) -> None:
    text = CLICKS.replace("guarantee", "guarante").replace("pipelines.dedup", "pipelines.dedupe")
    file.write_text(text, encoding="utf-8")
    found = refused(file, {"SEQMARK_PIPELINES__0__SORCE": "x", "SEQMARK_WORKERS__SLOTS": "1"})
    assert "did you mean guarantee?" in found["worker.guarante"]
    assert "did you mean dedup?" in found["pipelines.0.dedupe"]
    assert "did you mean SEQMARK_PIPELINES__0__SOURCE?" in found["SEQMARK_PIPELINES__0__SORCE"]
    assert "did you mean SEQMARK_WORKER__SLOTS?" in found["SEQMARK_WORKERS__SLOTS"]


def test_all_problems_are_said_at_once_wherever_they_come_from(file: Path) -> None:
    file.write_text(CLICKS.replace('"exactly_once"', '"twice"'), encoding="utf-8")
    found = refused(
        file,
        {
            "SEQMARK_WORKER__SLOTS": "many",
            "SEQMARK_PIPELINES__0__SINK": "clicks.raw",
            "SEQMARK_NONSENSE": "1",
            "SEQMARK_PIPELINES__0__DEDUP__SEQUENCE__FROM": "heather",
        },
    )
    assert found["worker.guarantee"] == 'must be "exactly_once" or "at_least_once"; given: "twice"'
    assert found["worker.slots"] == 'must be a whole number; given: "many"'
    assert "same topic as pipelines.clicks.source" in found["pipelines.0.sink"]
    assert "SEQMARK_NONSENSE" in found
    assert found["pipelines.0.dedup.sequence.from"] == (
        'must be one of "header", "value", "column"; did you mean "header"?; given: "heather"'
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    absent = tmp_path / "absent.toml"
    assert refused(absent) == {str(absent): "there is no such file: `seqmark init` writes one"}
    latin, wide, orders = (tmp_path / f"{name}.toml" for name in ("latin", "wide", "orders"))
    latin.write_bytes("# one\n# Grün".encode("latin-1"))
    wide.write_bytes("[kafka]".encode("utf-16"))
    orders.touch()
    near, elsewhere = tmp_path / "order.toml", tmp_path / "x.toml"
    assert refused(near) == {str(near): f"there is no such file; did you mean {orders}?"}
    listed = "there is no such file; there are latin.toml, orders.toml, wide.toml"
    assert refused(elsewhere) == {str(elsewhere): listed}
    assert refused(latin) == {str(latin): "is not UTF-8 at byte 10, in line 2: save it as UTF-8"}
    assert refused(wide) == {str(wide): "is UTF-16: save it as UTF-8"}
    assert "cannot be read: it is a folder; name a file in it" in refused(tmp_path)[str(tmp_path)]


def test_a_file_may_begin_with_a_mark_of_its_order_of_bytes(file: Path) -> None:
    file.write_text(CLICKS, encoding="utf-8-sig")
    assert load(file, {}).worker.application_id == "clicks"


def changed(file: Path, **environ: str) -> Settings:
    return load(file, {f"SEQMARK_PIPELINES__0__{key}": text for key, text in environ.items()})


@pytest.mark.parametrize("more", ["", ',route="by-id"'])
def test_what_is_not_built_yet_is_refused_by_name(file: Path, more: str) -> None:
    ids = f'{{mode="insert-id",id=[{{from="key"}}],window="1d"{more}}}'
    environ = {
        "SEQMARK_PIPELINES__0__DEDUP": ids,
        "SEQMARK_WORKER__GUARANTEE": "at_least_once",
        "SEQMARK_WORKER__WEB_PORT": "-1",
    }
    with pytest.raises(ConfigError) as caught:
        load(file, environ)
    problems = {problem.key: problem.message for problem in caught.value.problems}
    assert "does not work with insert-id yet" in problems["worker.guarantee"]
    assert problems.keys() == {"worker.guarantee", "worker.web_port"}


def test_a_mode_that_is_no_string_is_a_mistake_like_others(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(file, {"SEQMARK_PIPELINES__0__DEDUP": '{mode=["insert-id"]}', "SEQMARK_WORKER__WEB_PORT": "-1"})
    keys = {problem.key for problem in caught.value.problems}
    assert "worker.web_port" in keys
    assert any(key.startswith("pipelines.0.dedup") for key in keys)


def test_confirm_is_refused_and_said_what_filters_do_without_it(file: Path) -> None:
    for value in ("true", "false"):
        given = (
            f'{{mode="insert-id",id=[{{from="key"}}],window="1d",backend="bloom",bloom={{confirm={value}}}}}'
        )
        with pytest.raises(ConfigError) as caught:
            changed(file, DEDUP=given)
        (problem,) = caught.value.problems
        assert problem.key == "pipelines.0.dedup.bloom.confirm"
        assert "drop new records at the rate that is set" in problem.message
        assert 'backend = "exact"' in problem.message


def test_its_variable_is_told_the_same(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(file, {"SEQMARK_PIPELINES__0__DEDUP__BLOOM__CONFIRM": "false"})
    (problem,) = caught.value.problems
    assert "drop new records at the rate that is set" in problem.message


def test_filters_cannot_be_proved(file: Path) -> None:
    ids = 'mode="insert-id",id=[{from="key"}],window="1d"'
    require_provable(changed(file, DEDUP=f"{{{ids}}}"), ["clicks"])
    settings = changed(file, DEDUP=f'{{{ids},backend="bloom"}}')
    require_provable(settings, ["another"])
    routed = changed(file, DEDUP=f'{{{ids},route="by-id",backend="bloom"}}')
    with pytest.raises(ConfigError) as caught:
        require_provable(routed, ["clicks"])
    keys = [problem.key for problem in caught.value.problems]
    assert keys == ["pipelines.0.dedup.route", "pipelines.0.dedup.backend"]
    with pytest.raises(ConfigError) as caught:
        require_provable(settings, ["clicks"])
    assert [problem.key for problem in caught.value.problems] == ["pipelines.0.dedup.backend"]


AGGREGATES = Path(__file__).parents[3] / "examples" / "aggregates.toml"


@pytest.mark.parametrize("name", ["aggregate", "sinks"])
def test_aggregates_by_another_name_are_refused_with_the_right_one(tmp_path: Path, name: str) -> None:
    path = tmp_path / "named.toml"
    text = AGGREGATES.read_text(encoding="utf-8")
    path.write_text(text.replace("[[aggregates]]", f"[[{name}]]"), encoding="utf-8")
    assert "did you mean aggregates?" in refused(path)[name]


def test_a_worker_needs_a_pipeline(file: Path) -> None:
    settings: Any = load(file, {}).model_copy(update={"pipelines": []})
    with pytest.raises(ConfigError, match="pipelines"):
        require_pipelines(settings)
