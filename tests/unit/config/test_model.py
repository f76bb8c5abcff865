"""Every key of the contract is read, and every wrong value is told what would be right."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from processor.config.reference_page import page
from processor.judges.factory import mode_of
from schemas.config import HeaderNumber, InsertIdDedup, InternalTopic, Settings, ValueSource, WatermarkDedup
from schemas.config.reference import keys, place
from schemas.config.rules import violations
from schemas.config.values import duration_text, duration_words

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[3]
CLICKS = (ROOT / "examples" / "clicks.toml").read_text(encoding="utf-8")
COMPLETE = (ROOT / "examples" / "complete.toml").read_text(encoding="utf-8")


def raw(text: str = CLICKS) -> dict[str, Any]:
    return tomllib.loads(text)


def faults(config: dict[str, Any]) -> dict[str, str]:
    """Return each wrong key's message, keys as the file has them."""
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(config)
    return {".".join(map(str, place(e["loc"]).path)): e["msg"] for e in caught.value.errors()}


def with_pipeline(**changes: Any) -> dict[str, Any]:
    config = raw()
    config["pipelines"][0] |= changes
    return config


def with_dedup(**changes: Any) -> dict[str, Any]:
    return with_pipeline(dedup=raw()["pipelines"][0]["dedup"] | changes)


def insert_id(**changes: Any) -> dict[str, Any]:
    given = {"mode": "insert-id", "id": [{"from": "key"}], "window": "7d"}
    return with_pipeline(dedup=given | changes)


def two_pipelines(**second: Any) -> dict[str, Any]:
    config = raw()
    other = {"name": "b", "source": "b.raw", "sink": "b.clean"}
    config["pipelines"].append(config["pipelines"][0] | other | {"quarantine": "b.q"} | second)
    return config


def test_the_example_is_valid_and_its_defaults_are_the_contract_s() -> None:
    settings = Settings.model_validate(raw())
    worker = settings.worker
    assert (worker.commit_interval_ms, worker.session_timeout_ms) == (100, 45_000)
    assert (worker.transaction_timeout_ms, worker.slots, worker.web_port) == (60_000, 4, 6066)
    assert (worker.guarantee, worker.start, worker.create_topics) == (
        "exactly_once",
        "earliest",
        True,
    )
    assert settings.pipelines[0].duplicates == "clicks.duplicates"


def test_every_part_of_the_contract_is_read() -> None:
    settings = Settings.model_validate(raw(COMPLETE))
    watermark, ids = (pipeline.dedup for pipeline in settings.pipelines)
    assert isinstance(watermark, WatermarkDedup)
    assert isinstance(watermark.sequence, ValueSource)
    assert isinstance(watermark.epoch, HeaderNumber)
    assert watermark.epoch.format == "int32"
    assert isinstance(ids, InsertIdDedup)
    assert (ids.window, ids.max_ahead) == (7 * 86_400_000, 5 * 60_000)
    assert ids.bloom_options.bucket == 86_400_000
    assert settings.aggregates[0].output.kind == "parquet"


def test_the_bloom_table_may_be_left_out() -> None:
    dedup = Settings.model_validate(insert_id(backend="bloom")).pipelines[0].dedup
    assert isinstance(dedup, InsertIdDedup)
    assert dedup.bloom_options.false_positive_rate == 1e-9


@pytest.mark.parametrize("bloom", [None, {}, {"expected_per_bucket": 5}])
def test_a_bucket_that_is_not_set_is_a_day_or_a_shorter_window(bloom: dict[str, Any] | None) -> None:
    for window, bucket in (("1h", 3_600_000), ("1d", 86_400_000), ("7d", 86_400_000)):
        changes: dict[str, Any] = {"backend": "bloom", "window": window}
        dedup = Settings.model_validate(insert_id(**changes, **({} if bloom is None else {"bloom": bloom})))
        options = dedup.pipelines[0].dedup
        assert isinstance(options, InsertIdDedup)
        assert options.bloom_options.bucket == bucket


def test_a_definition_is_what_is_meant_however_much_of_it_is_written_down() -> None:
    def of(window: str, bloom: dict[str, Any] | None) -> bytes:
        changes: dict[str, Any] = {"backend": "bloom", "window": window}
        config = insert_id(**changes, **({} if bloom is None else {"bloom": bloom}))
        return mode_of(Settings.model_validate(config).pipelines[0]).definition()

    whole = {"false_positive_rate": 1e-9, "bucket": "1d", "expected_per_bucket": 20_000_000}
    assert of("7d", None) == of("7d", {}) == of("7d", whole)
    assert of("1h", None) == of("1h", {"bucket": "1h"})
    others: list[dict[str, Any]] = [{"bucket": "1h"}, {"expected_per_bucket": 5}]
    others.append({"false_positive_rate": 1e-3})
    assert len({of("7d", None), *(of("7d", other) for other in others)}) == 4


def test_secrets_do_not_show_in_a_printed_config() -> None:
    settings = Settings.model_validate(raw(COMPLETE.replace("…", "hunter2")))
    assert "hunter2" not in f"{settings!r} {settings} {settings.model_dump()}"


@pytest.mark.parametrize(
    ("texts", "length"),
    [
        (("90s", "90 seconds"), 90_000),
        (("2m", "2 minutes", "120 second"), 120_000),
        (("1h", "1 hour", "60 minutes"), 3_600_000),
        (("7d", "7 days", "1 week"), 604_800_000),
    ],
)
def test_a_duration_is_a_number_and_a_unit_of_a_letter_or_a_word(texts: Sequence[str], length: int) -> None:
    for text in texts:
        settings = Settings.model_validate(insert_id(window=text))
        dedup = settings.pipelines[0].dedup
        assert isinstance(dedup, InsertIdDedup)
        assert dedup.window == length


@pytest.mark.parametrize(
    ("length", "short", "words"),
    [
        (0, "0s", "0 seconds"),
        (1_000, "1s", "1 second"),
        (5_400_000, "90m", "90 minutes"),
        (7_200_000, "2h", "2 hours"),
        (604_800_000, "7d", "1 week"),
    ],
)
def test_a_duration_is_told_shortly_and_in_words_as_both_are_read(length: int, short: str, words: str) -> None:
    assert (duration_text(length), duration_words(length)) == (short, words)


def test_what_is_no_duration_is_told_both_spellings() -> None:
    told = faults(insert_id(window="7 d"))["pipelines.0.dedup.window"]
    assert '"7d"' in told
    assert '"1 hour"' in told


@pytest.mark.parametrize("nothing", ["0s", "0d", "00m"])
def test_the_clock_may_be_kept_from_ever_being_ahead(nothing: str) -> None:
    dedup = Settings.model_validate(insert_id(max_ahead=nothing)).pipelines[0].dedup
    assert isinstance(dedup, InsertIdDedup)
    assert dedup.max_ahead == 0


@pytest.mark.parametrize("key", ["window", "max_ahead"])
@pytest.mark.parametrize("text", ["1000000000d", "999999999999d", f"{10**18}s", "9" * 5_000 + "s"])
def test_a_duration_that_times_cannot_be_counted_by_is_told_the_longest_there_is(key: str, text: str) -> None:
    found = faults(insert_id(**{key: text}))
    assert list(found) == [f"pipelines.0.dedup.{key}"]
    assert 'must be at most "999999999d"' in found[f"pipelines.0.dedup.{key}"]


def test_the_longest_duration_is_one() -> None:
    dedup = Settings.model_validate(insert_id(window="999999999d")).pipelines[0].dedup
    assert isinstance(dedup, InsertIdDedup)
    assert 4 * dedup.window < 2**63, "a time, a window and what the clock may be ahead"


@pytest.mark.parametrize("wrong", ["7", "7w", "d", "1.5h", "-1d", "0s", "\u0667d", 7, True, ""])
def test_anything_else_is_no_duration(wrong: Any) -> None:
    assert set(faults(insert_id(window=wrong))) == {"pipelines.0.dedup.window"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("application_id", "a.b"),
        ("application_id", ""),
        ("slots", 0),
        ("slots", True),
        ("commit_interval_ms", 0),
        ("session_timeout_ms", 10),
        ("transaction_timeout_ms", 900_001),
        ("web_port", 65_536),
        ("guarantee", "at_most_once"),
        ("log_level", "loud"),
        ("create_topics", "perhaps"),
        ("web_host", ""),
    ],
)
def test_a_worker_s_value_out_of_its_bounds_is_named(key: str, value: Any) -> None:
    config = raw()
    config["worker"][key] = value
    assert set(faults(config)) == {f"worker.{key}"}


@pytest.mark.parametrize("wrong", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_topics_follow_kafka_s_rules(wrong: str) -> None:
    assert set(faults(with_pipeline(sink=wrong))) == {"pipelines.0.sink"}


@pytest.mark.parametrize("wrong", ["", "host", "host:", ":9092", "host:0", "host:65536", "a:1,,b:2"])
def test_addresses_are_host_and_port(wrong: str) -> None:
    config = raw()
    config["kafka"]["bootstrap_servers"] = wrong
    assert set(faults(config)) == {"kafka.bootstrap_servers"}


@pytest.mark.parametrize("right", ["h:1", "a:1, b:2", "[::1]:9092", "10.0.0.1:9092"])
def test_several_addresses_and_ipv6_are_read(right: str) -> None:
    config = raw()
    config["kafka"]["bootstrap_servers"] = right
    assert Settings.model_validate(config).kafka.bootstrap_servers == right.replace(" ", "")


@pytest.mark.parametrize("wrong", ["int64", "int32"])
def test_binary_formats_are_for_headers_only(wrong: str) -> None:
    sequence = {"from": "value", "pointer": "/seq", "format": wrong}
    found = faults(with_dedup(sequence=sequence))
    assert "headers" in found["pipelines.0.dedup.sequence.format"]


@pytest.mark.parametrize("wrong", ["seq", "/a~2", "/a~"])
def test_a_pointer_follows_rfc_6901(wrong: str) -> None:
    found = faults(with_dedup(sequence={"from": "value", "pointer": wrong}))
    assert set(found) == {"pipelines.0.dedup.sequence.pointer"}


@pytest.mark.parametrize("wrong", ["header", "header:", "keys", ""])
def test_a_scope_is_partition_key_or_a_header(wrong: str) -> None:
    assert set(faults(with_dedup(scope=wrong))) == {"pipelines.0.dedup.scope"}


@pytest.mark.parametrize("wrong", [-1, 0, 1, 2**63, "many", True])
def test_numbers_wrap_from_2_to_the_end_of_64_bits(wrong: Any) -> None:
    found = faults(with_dedup(sequence={"from": "value", "pointer": "/n", "wraps": wrong}))
    assert set(found) == {"pipelines.0.dedup.sequence.wraps"}
    if isinstance(wrong, int) and wrong is not True:
        assert "from 2 to 2^63 - 1" in found["pipelines.0.dedup.sequence.wraps"]


@pytest.mark.parametrize("wraps", [2, 16_384, 2**63 - 1])
def test_a_window_is_less_than_half_of_the_numbers_that_wrap(wraps: int) -> None:
    sequence = {"from": "value", "pointer": "/n", "wraps": wraps}
    widest = min((wraps - 1) // 2, 65_536)
    assert Settings.model_validate(with_dedup(sequence=sequence, reorder_window=widest))
    if widest < 65_536:
        found = dict(violations(with_dedup(sequence=sequence, reorder_window=widest + 1)))
        assert list(found) == [("pipelines", 0, "dedup", "reorder_window")]
        assert f"at most {widest:,}" in found["pipelines", 0, "dedup", "reorder_window"]


def test_all_that_is_wrong_with_numbers_that_wrap_and_epochs_that_change_is_said_at_once() -> None:
    sequence = {"from": "header", "name": "n", "format": "int32", "wraps": 2**31 + 1}
    epoch = {"from": "header", "name": "boot", "order": "change", "format": "text"}
    config = with_dedup(sequence=sequence, epoch=epoch)
    config["worker"]["guarantee"] = "at_least_once"
    found = dict(violations(config))
    assert set(found) == {
        ("pipelines", 0, "dedup", "sequence", "wraps"),
        ("pipelines", 0, "dedup", "epoch", "format"),
        ("worker", "guarantee"),
    }
    # An epoch that wraps would be none.
    wrong = {"from": "header", "name": "e", "wraps": 8}
    assert set(faults(with_dedup(epoch=wrong))) == {"pipelines.0.dedup.epoch.wraps"}


@pytest.mark.parametrize("wrong", [-1, 65_537])
def test_a_reorder_window_has_at_most_65536_numbers(wrong: int) -> None:
    assert set(faults(with_dedup(reorder_window=wrong))) == {"pipelines.0.dedup.reorder_window"}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"id": []}, "id"),
        ({"id": [{"from": "key", "name": "x"}]}, "id.0.name"),
        ({"backend": "exact", "bloom": {}}, "bloom"),
        ({"backend": "bloom", "window": "1h", "bloom": {"bucket": "2h"}}, "bloom.bucket"),
        ({"backend": "bloom", "bloom": {"false_positive_rate": 0}}, "bloom.false_positive_rate"),
        ({"backend": "bloom", "bloom": {"false_positive_rate": 1e-323}}, "bloom.false_positive_rate"),
        ({"id": [{"from": "value", "pointer": f"/{n}"} for n in range(63)]}, "id"),
        ({"id": [{"from": "content", "exclude": [f"/{n}" for n in range(63)]}]}, "id"),
        ({"id": [{"from": "content", "exclude": ["/a", ""]}]}, "id.0.exclude.1"),
        ({"id": [{"from": "content", "exclude": ["a"]}]}, "id.0.exclude.0"),
        ({"id": [{"from": "content", "of": "bytes", "exclude": ["/a"]}]}, "id.0.exclude"),
        ({"id": [{"from": "content"}, {"from": "content", "of": "bytes"}]}, "id.1"),
        ({"id": [{"from": "content", "of": "json"}]}, "id.0.of"),
        ({"route": "by-key"}, "route"),
    ],
)
def test_an_insert_id_mistake_is_named(changes: dict[str, Any], key: str) -> None:
    assert set(faults(insert_id(**changes))) == {f"pipelines.0.dedup.{key}"}


@pytest.mark.parametrize("role", ["sink", "duplicates", "quarantine"])
def test_an_output_is_not_the_source(role: str) -> None:
    assert set(faults(with_pipeline(**{role: "clicks.raw"}))) == {f"pipelines.0.{role}"}


def test_a_routed_pipeline_and_another_one_do_not_share_an_internal_topic() -> None:
    config = insert_id(route="by-id")
    config["pipelines"][0]["name"] = "x"
    other = {"name": "x-route", "source": "b.raw", "sink": "b.clean", "quarantine": "b.q"}
    config["pipelines"].append(config["pipelines"][0] | other)
    found = faults(config)
    assert set(found) == {"pipelines.0.name"}
    assert "pipeline x-route" in found["pipelines.0.name"]
    config["pipelines"][0]["dedup"].pop("route")
    Settings.model_validate(config)


def test_outputs_differ_from_each_other() -> None:
    assert set(faults(with_pipeline(duplicates="clicks.clean"))) == {"pipelines.0.duplicates"}


@pytest.mark.parametrize(
    ("second", "key"),
    [
        ({"name": "clicks"}, "name"),
        ({"source": "clicks.raw"}, "source"),
        ({"sink": "clicks.clean"}, "sink"),
        ({"sink": "clicks.quarantine"}, "sink"),
        ({"quarantine": "clicks.raw"}, "quarantine"),
        *[({"sink": f"clicks-clicks-{each}"}, "sink") for each in InternalTopic],
        ({"name": "n" * 240}, "name"),
    ],
)
def test_two_pipelines_do_not_meet(second: dict[str, Any], key: str) -> None:
    assert set(faults(two_pipelines(**second))) == {f"pipelines.1.{key}"}


def test_a_pipeline_may_follow_another_and_share_its_quarantine() -> None:
    config = two_pipelines(source="clicks.clean", quarantine="clicks.quarantine")
    assert len(Settings.model_validate(config).pipelines) == 2


def test_a_loop_of_pipelines_is_shown() -> None:
    found = faults(two_pipelines(source="clicks.clean", sink="clicks.raw"))
    assert found["pipelines.0.source"].endswith("clicks.raw -> clicks.clean -> clicks.raw")


def test_a_transaction_outlives_a_commit_interval() -> None:
    config = raw()
    config["worker"] |= {"commit_interval_ms": 60_000, "transaction_timeout_ms": 60_000}
    assert set(faults(config)) == {"worker.transaction_timeout_ms", "worker.session_timeout_ms"}


@pytest.mark.parametrize(
    ("kafka", "wrong"),
    [
        ({"security_protocol": "SASL_SSL"}, {"sasl_plain_username", "sasl_plain_password"}),
        ({"sasl_plain_password": "hunter2"}, {"sasl_plain_password"}),
        ({"ssl_cafile": "ca.pem"}, {"ssl_cafile"}),
        ({"security_protocol": "SSL", "ssl_keyfile": "key.pem"}, {"ssl_keyfile"}),
        ({"sasl_mechanism": "GSSAPI"}, {"sasl_mechanism"}),
    ],
)
def test_credentials_fit_the_protocol(kafka: dict[str, str], wrong: set[str]) -> None:
    config = raw()
    config["kafka"] |= kafka
    assert set(faults(config)) == {f"kafka.{key}" for key in wrong}


def test_rules_between_fields_are_checked_where_other_fields_are_wrong_too() -> None:
    config = two_pipelines(source="clicks.raw", dedup={"mode": "watermark"})
    config["worker"] |= {"slots": "many", "commit_interval_ms": 2_000, "transaction_timeout_ms": 1_500}
    assert set(faults(config)) == {
        "worker.slots",
        "worker.transaction_timeout_ms",
        "pipelines.1.source",
        "pipelines.1.dedup.sequence",
    }


@pytest.mark.parametrize("config", [{}, {"kafka": 3, "worker": [], "pipelines": {}, "aggregates": [4]}])
def test_a_file_of_another_shape_is_an_error_not_a_crash(config: dict[str, Any]) -> None:
    assert {"kafka", "worker"} <= set(faults(config))


def test_two_sinks_do_not_share_a_checkpoint() -> None:
    config = raw(COMPLETE)
    daily = {"name": "daily", "output": {"kind": "console"}}
    config["aggregates"].append(config["aggregates"][0] | daily)
    assert set(faults(config)) == {"aggregates.1.checkpoint"}


def test_every_key_has_a_description_and_a_variable_of_its_own() -> None:
    declared = list(keys())
    assert all(key.description for key in declared)
    assert len({(key.env, key.variant) for key in declared}) == len(declared)


def test_the_generated_page_is_fresh() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == page()
