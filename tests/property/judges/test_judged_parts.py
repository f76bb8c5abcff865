"""Parts of ids and scopes in a worker in memory: streams with a known truth, and cases from the field."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from processor.engine.extract.ids import IdExtractor
from processor.engine.extract.normalise import Normal
from processor.engine.extract.parts import (
    AnyPart,
    ContentPart,
    HeaderPart,
    KeyPart,
    Part,
    TextPart,
    ValuePart,
)
from processor.errors import ConfigError
from processor.generator import FAULTS, StreamOptions, make_stream
from processor.judges.asked_id import asked_ids, hash_of
from schemas.config import Pipeline
from seqmark import Config
from seqmark.testing import Driver, DriverRecord
from tests.support.wire import batches
from tests.support.wire.batches import Record

if TYPE_CHECKING:
    from pathlib import Path

START_MS = 1_767_603_600_000
CONFIG = """
[kafka]
bootstrap_servers = "localhost:9092"
[worker]
application_id = "parts"
[[pipelines]]
name = "p"
source = "raw"
sink = "clean"
duplicates = "dropped"
quarantine = "refused"
[pipelines.dedup]
"""
HEADER = '{ from = "header", name = "id" }'
FIELD, INSIDE = '{ from = "value", pointer = "/m/id" }', '{ from = "value", pointer = "/data|/m|/id" }'
IDS = 'mode = "insert-id"\nwindow = "1h"\n'
SEQUENCES = 'mode = "watermark"\nsequence = { from = "value", pointer = "/data|/n" }\n'
COLUMN = {"from": "column", "number": 2}
GENERATED = {
    "through strings": f"{IDS}id = [{INSIDE}, {FIELD}]",
    "any": f'{IDS}id = [{{ any = [{FIELD}, {{ from = "key" }}] }}]',
    "any, alone": f"{IDS}id = [{{ any = [{FIELD}, {HEADER}] }}]",
    "any, passing": f'{IDS}on_missing = "pass"\nid = [{{ any = [{HEADER}, {FIELD}] }}]',
    "integer": f'{IDS}id = [{{ any = [{FIELD}], normalise = "integer" }}, {{ from = "key" }}]',
    "lower": f'{IDS}id = [{{ from = "value", pointer = "/event_id", normalise = "lower" }}]',
    "text": f'{IDS}id = [{{ from = "text" }}]',
    "scope in the value": f'{SEQUENCES}scope = {{ from = "value", pointer = "/gateway" }}',
    "scope of three": f'{SEQUENCES}reorder_window = 7\nscope = ["key", "header:who", "value:/data|/s"]',
}


def started(folder: Path, dedup: str) -> tuple[Driver, Any]:
    (folder / "my.toml").write_text(CONFIG + dedup)
    config = Config.load(folder / "my.toml", {})
    return Driver(config), config


@pytest.mark.parametrize("dedup", GENERATED.values(), ids=GENERATED)
def test_a_generated_stream_is_judged_as_its_truth_says(tmp_path: Path, dedup: str) -> None:
    driver, config = started(tmp_path, dedup)
    (part,) = make_stream(
        config.settings.pipelines[0].dedup,
        StreamOptions(1_500, 0.2, 3, 1, START_MS, span_ms=600_000, malformed=0.05),
    )
    made = part.records(0, len(part))
    driver.produce(
        "raw", [DriverRecord(each.value, each.key, each.headers, each.timestamp_ms) for each in made]
    )
    driver.run()
    told = [{name: value or b"" for name, value in each.headers} for each in driver.read("refused")]
    refused = {int(each["seqmark.source"].split(b":")[-1]): each["seqmark.error"].decode() for each in told}
    assert refused == {at: FAULTS[fault] for at, fault in enumerate(part.faults.tolist()) if fault}
    dropped = {at for at, passes in enumerate(part.passes.tolist()) if not passes} - refused.keys()
    assert offsets(driver) == sorted(dropped)
    assert dropped


def offsets(driver: Driver) -> list[int]:
    """Return the offsets of the records that were dropped."""
    return [json.loads(each.value or b"")["offset"] for each in driver.read("dropped")]


@pytest.mark.parametrize(
    ("dedup", "where"),
    [
        (
            {"mode": "insert-id", "window": "1h", "id": [{"from": "key"}, {"from": "column", "number": 2}]},
            "id.1",
        ),
        ({"mode": "watermark", "sequence": {"from": "column", "number": 2}}, "sequence"),
        (
            {
                "mode": "watermark",
                "sequence": {"from": "header", "name": "n"},
                "scope": ["key", {"from": "text"}],
            },
            "scope",
        ),
    ],
)
def test_a_stream_that_clicks_cannot_be_is_refused_by_its_key(dedup: dict[str, Any], where: str) -> None:
    definition = Pipeline.model_validate({"name": "p", "source": "a", "sink": "b", "dedup": dedup}).dedup
    with pytest.raises(ConfigError, match=rf"dedup\.{where}: .*(a column|in no generated record)"):
        make_stream(definition, StreamOptions(10, 0.0, 1, 1, START_MS))


def capture(number: int, sent: int) -> bytes:
    """Return an event in a string, as PostHog's capture writes it; a retry has another outer id and time."""
    inner = {"event": "$pageview", "properties": {"$insert_id": f"k3{number:06x}zq", "$lib": "web"}}
    return json.dumps({"uuid": f"{number}-{sent}", "data": json.dumps(inner), "now": sent}).encode()


def enriched(number: int, run: int) -> bytes:
    """Return a line of 34 columns with its id in the seventh, as Snowplow does; a repeat has another time."""
    event_id = f"{number:08x}-f570-4414-b91a-b0db8f39cc2e"
    return "\t".join(["shop", "web", f"06:{run}", "", "", "page_view", event_id, *[""] * 27]).encode()


def reading(sensor: int, number: int) -> bytes:
    return json.dumps({"sensor": f"s{sensor}", "seq": number}).encode()


CASES = {
    "JSON in a string": (
        f'{IDS}id = [{{ from = "value", pointer = "/data|/properties/$insert_id" }}]',
        [*(capture(at, at) for at in range(150)), *(capture(at, 200 + at) for at in (3, 40, 77, 149))],
        [150, 151, 152, 153],
    ),
    "columns": (
        f'{IDS}id = [{{ from = "column", number = 7, normalise = "uuid" }}]',
        [*(enriched(at, 1) for at in range(100)), *(enriched(at, 2).upper() for at in range(95, 100))],
        list(range(100, 105)),
    ),
    "a sequence per sensor": (
        'mode = "watermark"\nscope = "value:/sensor"\nsequence = { from = "value", pointer = "/seq" }',
        [
            *(reading(sensor, 1000 * sensor + at) for at in range(200) for sensor in range(4)),
            *(reading(2, 2000 + at) for at in range(190, 200)),
        ],
        list(range(800, 810)),
    ),
    "an id that moved from the value into a header": (
        f'{IDS}id = [{{ any = [{{ from = "value", pointer = "/id" }}, {HEADER}] }}]',
        [
            b'{"id":"a"}',
            DriverRecord(b'{"id":null}', headers=[("id", b"a")]),
            b'{"id":null}',
            b'{"id":true}',
            b'{"id":true}',
        ],
        [1, 4],
    ),
}


@pytest.mark.parametrize(("dedup", "records", "copies"), CASES.values(), ids=CASES)
def test_of_a_case_from_the_field_the_copies_are_dropped_and_nothing_else_also_after_a_restart(
    tmp_path: Path, dedup: str, records: list[bytes | DriverRecord], copies: list[int]
) -> None:
    driver, _ = started(tmp_path, dedup)
    half = len(records) // 2
    driver.produce("raw", records[:half])
    driver.run()
    driver.restart(wipe=True)
    driver.produce("raw", records[half:])
    driver.run()
    assert offsets(driver) == copies
    assert len(driver.read("clean")) + len(copies) + len(driver.read("refused")) == len(records)


ONE = Record(0, 1, b"6F9619FF8B86D011B42D00CF4FC964FF", b'{"n":7.0,"ok":true}', ((b"h", b"A\xff"),))
ASKED: list[tuple[list[Part], list[str]]] = [
    ([KeyPart(Normal.UUID)], ["{6f9619ff-8b86-d011-b42d-00cf4fc964ff}"]),
    ([ValuePart("/n", normal=Normal.INTEGER), ValuePart("/ok")], ["007", "true"]),
    ([ValuePart("/n", normal=Normal.INTEGER), ValuePart("/ok")], ['json:"70e-1"', "json:true"]),
    ([AnyPart((ValuePart("/none"), HeaderPart(b"h", Normal.LOWER)))], ["base64:Yf8="]),
    ([AnyPart((ValuePart("/none"), ContentPart(), KeyPart()))], ["CONTENT"]),
    ([TextPart()], ['{"n":7.0,"ok":true}']),
]


@pytest.mark.parametrize(("parts", "words"), ASKED)
def test_an_id_is_asked_for_in_any_way_of_writing_that_counts_as_the_same(
    parts: list[Part], words: list[str]
) -> None:
    (piece,) = batches.DECODER.pieces(batches.chunk(batches.by_hand([ONE])))
    ids = IdExtractor(parts, bytes(16)).extract(piece.columns)
    if words == ["CONTENT"]:
        words = [f"content:{ids.content[0].astype('<u8').tobytes().hex()}"]
    asked = [hash_of(each, bytes(16)).tobytes() for each in asked_ids(parts, words)]
    assert asked.count(ids.hash.tobytes()) == 1


def test_a_word_that_no_part_of_several_can_be_is_refused() -> None:
    with pytest.raises(ValueError, match="a content is asked for as content:"):
        asked_ids([AnyPart((ContentPart(),))], ["abc"])
