"""Every field of the JSON is explained in docs/status.md, and tables show what is in it as it stands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from processor.errors import Problem
from processor.inspection.status.facts import (
    ApplicationProgress,
    HopProgress,
    PipelineProgress,
    QuarantineExample,
    QuarantineLook,
    QuarantineTally,
    VerdictsProgress,
)
from processor.inspection.status.show import application_fields, drawn, pipeline_fields
from processor.kafka.client import TopicPartition
from processor.kafka.transactions.listing import OpenTransaction
from tests.unit.inspection.status.test_facts import NOW_MS, PIPELINE, STABLE, partition

PAGE = (Path(__file__).parents[4] / "docs" / "status.md").read_text()
HOP = HopProgress("clicks", "raw", [partition(0), partition(1, None)], "app-clicks-changelog", 4_500, [5_200])
TALLY = QuarantineTally(
    "header_missing", 1, 2, QuarantineExample("aside", 0, 9, NOW_MS, "raw:0:4", "no [b]header[/b]")
)
OPEN = OpenTransaction(TopicPartition("raw", 1), 90, 7, NOW_MS, "theirs", "Ongoing", NOW_MS - 5_000, 60_000)
ALL = PipelineProgress(
    PIPELINE,
    [HOP],
    [OPEN],
    QuarantineLook([TALLY]),
    VerdictsProgress("says", 900, 40, 2, 7),
    ["receipts"],
    [Problem("clean", "has 1 partition")],
    [Problem("clean", "is small")],
)
APPLICATION = ApplicationProgress("app", NOW_MS, [ALL], STABLE, ["broker 2 does not answer"])


def keys(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            # By hop: those keys are names.
            yield from [key] if key != "clicks" else []
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


def test_every_field_is_on_the_page() -> None:
    objects = [application_fields(APPLICATION), pipeline_fields(ALL, APPLICATION)]

    missing = {key for each in objects for key in keys(each) if f"`{key}`" not in PAGE}

    assert not missing
    assert json.loads(json.dumps(objects)) == objects


def test_a_table_shows_each_part_and_takes_brackets_for_text() -> None:
    console = Console(width=220)
    with console.capture() as shown:
        console.print(drawn(APPLICATION))

    said = shown.get()
    assert said.startswith("clicks: nobody works on 1 of 2 partitions (raw: 1)")
    for part in (
        "no [b]header[/b]",
        "app-clicks-changelog",
        "4.5 kB",
        "theirs",
        "5 s",
        "problem: clean: has 1 partition",
        "warning: clean: is small",
        "not made yet: receipts",
        "not known: broker 2 does not answer",
    ):
        assert part in said, part


def test_nothing_of_a_record_commands_the_terminal() -> None:
    evil = "\x1b[2J\x07\u202e"
    tally = QuarantineTally(evil, 1, 2, QuarantineExample("aside", 0, 9, NOW_MS, evil, evil))
    pipeline = replace(ALL, quarantine=QuarantineLook([tally]))
    console = Console(width=300)
    with console.capture() as shown:
        console.print(drawn(replace(APPLICATION, pipelines=[pipeline], notes=[evil])))

    said = shown.get()
    assert said.count(r"\x1b[2J\x07\u202e") >= 4
    assert said.replace("\n", "").isprintable()
