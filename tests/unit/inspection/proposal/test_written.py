"""A proposal is written as a config that says why, and that every command takes."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from processor.config.load import load
from processor.inspection.audit.read import MOST_PARTITIONS, shares
from processor.inspection.proposal.choose import propose
from processor.inspection.proposal.names import PipelineNames
from processor.inspection.proposal.observed import observe
from processor.inspection.proposal.toml_text import toml_text
from processor.inspection.proposal.written import config_text
from schemas.config import Kafka
from tests.unit.inspection.proposal.topics import Stream, int64

if TYPE_CHECKING:
    from pathlib import Path

    from processor.inspection.topic_records import TopicRecord

GOLDEN_IDS = """\
# Proposed by `seqmark init` after a look at 420 records in 2 partitions of clicks.raw. A sample
# shows what is usual, not all that is possible: look it over.

[kafka]
bootstrap_servers = "localhost:9092"

[worker]
application_id = "clicks"               # consumer group, and prefix of internal topics

[[pipelines]]
name = "clicks"
source = "clicks.raw"
sink = "clicks.clean"                   # the clean topic: read it with isolation.level=read_committed
duplicates = "clicks.duplicates"        # a receipt per dropped record
quarantine = "clicks.quarantine"        # records that cannot be judged

[pipelines.dedup]
# /event_id is in all 420 records and tells them apart: 400 different, and 20 copies with the same
# content
mode = "insert-id"
id = [{ from = "value", pointer = "/event_id" }]
# copies came up to 1 s after the first; the sample shows no later ones: so a day. One that comes
# later still passes
window = "1d"
# in case ids are not always unique (docs/fingerprints.md): copies differ in what is excluded:
# fingerprint = { exclude = ["/sent_at"] }
"""

GOLDEN_SEQUENCE = """\
[pipelines.dedup]
# header seq is a number that rises per partition and producer, one by one, in all 420 records; 20
# numbers came again with the same value, as resends do
mode = "watermark"
# the numbers rise per producer, not per partition
scope = "header:producer"
sequence = { from = "header", name = "seq", format = "int64" }
"""


def with_ids() -> list[TopicRecord]:
    stream = Stream()

    def resent(sent: TopicRecord, at_ms: int) -> TopicRecord:
        return sent._replace(value=json.dumps(json.loads(sent.value or b"") | {"sent_at": at_ms}).encode())

    make = stream.new_id
    return stream.records(400, lambda number, _: {"value": {"event_id": make(), "sent_at": number}}, resent)


def with_sequences() -> list[TopicRecord]:
    return Stream().records(
        400,
        lambda number, _: {
            "headers": [(b"producer", b"p%d" % (number // 2 % 2)), (b"seq", int64(number // 4))],
            "value": {"n": number},
        },
    )


def written(topic: str, records: list[TopicRecord], kafka: Kafka | None = None) -> str:
    proposal = propose(observe(records))
    assert proposal is not None
    kafka = kafka or Kafka(bootstrap_servers="localhost:9092")
    seen = f"{len(records)} records in 2 partitions"
    return config_text(topic, seen, kafka, PipelineNames.after(topic), proposal)


def test_a_config_of_ids_says_why_beside_each_choice() -> None:
    assert written("clicks.raw", with_ids()) == GOLDEN_IDS


def test_a_config_of_sequences_says_whose_they_are() -> None:
    assert written("clicks.raw", with_sequences()).endswith(GOLDEN_SEQUENCE)


@pytest.mark.parametrize("topic", ["clicks.raw", "events", "a-b_c.d", "x" * 249, "..raw", "_", "A.B.input"])
def test_a_config_is_right_whatever_the_topic_is_called(topic: str, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(written(topic, with_ids()))

    (pipeline,) = load(path, {}).pipelines

    assert pipeline.source == topic
    assert len({topic, *pipeline.outputs}) == 4


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "tilde~slash/", "günstig", "a b", "'"])
def test_a_member_of_any_name_is_written_as_toml_reads_it(name: str, tmp_path: Path) -> None:
    make = Stream().new_id
    records = Stream().records(100, lambda *_: {"value": {name: make()}})
    path = tmp_path / "my.toml"
    path.write_text(written("t", records), encoding="utf-8")

    dedup = load(path, {}).pipelines[0].id_dedup

    assert dedup is not None
    assert dedup.id[0].model_dump()["pointer"] == "/" + name.replace("~", "~0").replace("/", "~1")


def test_security_is_written_without_its_secrets(tmp_path: Path) -> None:
    kafka = Kafka.model_validate(
        {
            "bootstrap_servers": "one:1,two:2",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "me",
            "sasl_plain_password": "hunter2",
            "ssl_check_hostname": False,
        }
    )
    text = written("t", with_ids(), kafka)
    path = tmp_path / "my.toml"
    path.write_text(text)

    assert "hunter2" not in text
    assert "# sasl_plain_password: from the environment, SEQMARK_KAFKA__SASL_PLAIN_PASSWORD" in text
    assert load(path, {"SEQMARK_KAFKA__SASL_PLAIN_PASSWORD": "hunter2"}).kafka == kafka


@pytest.mark.parametrize(
    ("topic", "names"),
    [
        ("clicks.raw", ("clicks", "clicks.clean", "clicks.duplicates", "clicks.quarantine")),
        ("events", ("events", "events.clean", "events.duplicates", "events.quarantine")),
        ("shop-orders-in", ("shop-orders", "shop-orders-clean",
                            "shop-orders-duplicates", "shop-orders-quarantine")),
        ("shop.v1.orders", ("shop-v1-orders", "shop.v1.orders.clean",
                            "shop.v1.orders.duplicates", "shop.v1.orders.quarantine")),
        ("raw", ("raw", "raw.clean", "raw.duplicates", "raw.quarantine")),
    ],
)  # fmt: skip
def test_topics_are_named_after_the_source(topic: str, names: tuple[str, ...]) -> None:
    assert PipelineNames.after(topic) == names


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ({0: 5000, 1: 5000}, {0: 500, 1: 500}),
        ({0: 10, 1: 5000}, {0: 10, 1: 990}),
        ({0: 0, 1: 7}, {1: 7}),
        ({0: 0}, {}),
        (dict.fromkeys(range(3), 9999), {0: 334, 1: 333, 2: 333}),
    ],
)
def test_partitions_give_alike_and_more_where_others_have_fewer(
    there: dict[int, int], wanted: dict[int, int]
) -> None:
    assert sorted(shares(there, 1000).values()) == sorted(wanted.values())
    assert sum(shares(there, 1000).values()) == min(1000, sum(there.values()))


def test_of_very_many_partitions_those_with_the_most_records_are_looked_at() -> None:
    wanted = shares({number: number for number in range(1000)}, 1000)

    assert set(wanted) == set(range(1000 - MOST_PARTITIONS, 1000))
    assert sum(wanted.values()) == 1000


def test_toml_is_on_one_line() -> None:
    value = {"a": ["x\n\x7f", 1], "b": {}, "c": True}

    assert toml_text(value) == '{ a = ["x\\n\\u007f", 1], b = {}, c = true }'
    assert os.linesep not in toml_text(value)
