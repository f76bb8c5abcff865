"""Renders what is known of an application: a sentence per pipeline, then tables, or JSON objects.

What nothing is known of has no table. Tables of many partitions show those that are worst. docs/status.md
explains each field of the objects: times are ms since 1970, sizes bytes; what is not known is null.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group as Stack
from rich.text import Text

from processor.config.visible import visible
from processor.inspection.findings import Level
from processor.inspection.status.facts import age_s, sentence
from processor.ops.number_table import NumberTable
from processor.ops.status_text import count, duration, short, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from processor.errors import Problem
    from processor.inspection.status.facts import (
        ApplicationProgress,
        HopProgress,
        PartitionProgress,
        PipelineProgress,
        QuarantineTally,
    )
    from processor.kafka.group.description import DescribedMember
    from processor.kafka.transactions.listing import OpenTransaction

MOST_PARTITIONS = 32
"""Of a hop, in the table; `--json` has them all."""
STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


def drawn(application: ApplicationProgress) -> Stack:
    """Return all of it, to be printed at once."""
    return Stack(*_parts(application))


def _parts(application: ApplicationProgress) -> Iterator[RenderableType]:
    for pipeline in application.pipelines:
        said = sentence(pipeline, application)
        yield _line(said.text, STYLES[said.level])
        for each in (*pipeline.states, *pipeline.escaped):
            yield _line(f"{pipeline.pipeline.name}: {each}", STYLES[Level.WARNING])
    hops = [hop for pipeline in application.pipelines for hop in pipeline.hops]
    yield from _workers(application, hops)
    yield from _partitions(application, hops)
    yield from _states(hops)
    yield from _verdicts(application)
    yield from _transactions(application)
    yield from _quarantines(application)
    yield from _topics(application.pipelines)
    for note in application.notes:
        yield _line(f"not known: {note}", STYLES[Level.WARNING])


def _workers(application: ApplicationProgress, hops: Sequence[HopProgress]) -> Iterator[RenderableType]:
    group = application.group
    if group is None:
        return
    rows = [
        (
            member.short,
            member.name,
            member.host,
            "; ".join(
                f"{hop.name} {_list(member.slots_of(hop.source))}"
                for hop in hops
                if member.slots_of(hop.source)
            )
            or "stands by",
            str(len(member.assigned)),
        )
        for member in group.members
    ]
    words = f"group {group.group_id}: {group.state}, {count(len(rows), 'member')}"
    yield _line(words, "dim")
    yield from _grid(("worker", "member", "host", "slots", "partitions"), rows, right=(4,))


def _partitions(application: ApplicationProgress, hops: Iterable[HopProgress]) -> Iterator[RenderableType]:
    members = application.group.members if application.group is not None else ()
    names = {member.name: member.short for member in members}
    rows: list[tuple[str, ...]] = []
    left = 0
    for hop in hops:
        shown = worst(hop.partitions)
        left += len(hop.partitions) - len(shown)
        rows += [
            (
                hop.name,
                str(each.number),
                "nobody" if each.worker is None else names[each.worker],
                _number(each.position),
                _number(each.stable),
                _number(each.end),
                _number(each.lag),
                _number(each.lag_to_end),
                _ago(each.committed_ms, application.at_ms),
            )
            for each in shown
        ]
    titles = (
        "pipeline",
        "partition",
        "worker",
        "position",
        "last stable",
        "end",
        "lag",
        "lag to end",
        "commit",
    )
    yield from _grid(titles, rows, right=(1, 3, 4, 5, 6, 7), marked=frozenset({"nobody"}))
    if left:
        yield Text(f"and {count(left, 'partition')} more; --json has them all", style="dim")


def worst(partitions: Sequence[PartitionProgress]) -> list[PartitionProgress]:
    """Return at most `MOST_PARTITIONS`, by number: first those that nobody has, then those furthest behind."""
    if len(partitions) <= MOST_PARTITIONS:
        return list(partitions)
    by_need = sorted(partitions, key=lambda each: (each.worker is not None, -(each.lag_to_end or 0)))
    return sorted(by_need[:MOST_PARTITIONS], key=lambda each: each.number)


def _states(hops: Iterable[HopProgress]) -> Iterator[RenderableType]:
    rows = [
        (
            hop.name,
            hop.changelog,
            "-" if hop.changelog_bytes is None else size(hop.changelog_bytes),
            " + ".join(map(size, hop.local_bytes)) or "-",
            "-" if hop.records_per_s is None else f"{short(hop.records_per_s)} ({hop.measured_by})",
        )
        for hop in hops
    ]
    yield from _grid(
        ("pipeline", "changelog", "its size", "state on this machine", "records/s"), rows, right=(2, 3)
    )


def _verdicts(application: ApplicationProgress) -> Iterator[RenderableType]:
    rows = [
        (
            pipeline.pipeline.name,
            verdicts.topic,
            "-" if verdicts.topic_bytes is None else size(verdicts.topic_bytes),
            _number(verdicts.retained),
            "never"
            if verdicts.unmaterialized is None
            else f"{verdicts.unmaterialized} behind in {count(verdicts.materialized, 'partition')}",
        )
        for pipeline in application.pipelines
        if (verdicts := pipeline.verdicts) is not None
    ]
    yield from _grid(
        ("pipeline", "verdicts", "its size", "offsets retained", "materialize"), rows, right=(2, 3)
    )


def _transactions(application: ApplicationProgress) -> Iterator[RenderableType]:
    rows = [
        (
            pipeline.pipeline.name,
            f"{each.partition.topic}:{each.partition.partition}",
            str(each.first_offset),
            each.transactional_id or f"not known, producer {each.producer_id}",
            _since(each, application.at_ms),
            each.state or "-",
        )
        for pipeline in application.pipelines
        for each in pipeline.open
    ]
    titles = ("pipeline", "open transaction in", "from offset", "transactional id", "open for", "state")
    yield from _grid(titles, rows, right=(2,))


def _quarantines(application: ApplicationProgress) -> Iterator[RenderableType]:
    rows = [
        (
            pipeline.pipeline.name,
            tally.code,
            f"{tally.recent:,}",
            f"{tally.older:,}",
            f"{tally.example.topic}:{tally.example.partition}:{tally.example.offset}",
            tally.example.source,
            tally.example.detail,
        )
        for pipeline in application.pipelines
        for tally in pipeline.quarantine.tallies
    ]
    titles = ("pipeline", "quarantined", "last hour", "before", "newest", "its source", "detail")
    yield from _grid(titles, rows, right=(2, 3))


def _topics(pipelines: Iterable[PipelineProgress]) -> Iterator[RenderableType]:
    for pipeline in pipelines:
        yield from _problems(pipeline.problems, Level.PROBLEM)
        yield from _problems(pipeline.warnings, Level.WARNING)
        if pipeline.missing:
            yield _line(f"not made yet: {', '.join(pipeline.missing)}", "dim")


def _problems(problems: Iterable[Problem], level: Level) -> Iterator[RenderableType]:
    for problem in problems:
        yield _line(f"{level}: {problem}", STYLES[level])


def _line(text: str, style: str) -> Text:
    return Text(visible(text, kept="\n"), style=style)


def _grid(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Iterable[int],
    marked: frozenset[str] = frozenset(),
) -> Iterator[NumberTable]:
    """Yield a table, where there are rows; those with a word of ``marked`` are a problem.

    Columns in ``right`` hold numbers.
    """
    grid = NumberTable(*titles)
    for index in right:
        grid.columns[index].justify = "right"
    for row in rows:
        style = STYLES[Level.PROBLEM] if marked & set(row) else ""
        # As text: brackets in a detail are no markup.
        grid.add_row(*(Text(visible(cell)) for cell in row), style=style)
    if rows:
        yield grid


def _since(transaction: OpenTransaction, now_ms: int) -> str:
    age = age_s(transaction, now_ms)
    return "-" if age is None else duration(age)


def _ago(at_ms: int | None, now_ms: int) -> str:
    return "-" if at_ms is None else f"{duration(max(0.0, (now_ms - at_ms) / 1000))} ago"


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


# -------------------------------------------------------------------- for programs


def application_fields(application: ApplicationProgress) -> dict[str, Any]:
    """Return the object about the group and its workers."""
    group = application.group
    hops = [hop for pipeline in application.pipelines for hop in pipeline.hops]
    return {
        "kind": "group",
        "group": application.application_id,
        "at_ms": application.at_ms,
        "reachable": not application.unreachable,
        "state": None if group is None else group.state,
        "workers": None if group is None else [_worker_fields(each, hops) for each in group.members],
        "notes": list(application.notes) + ([application.unreachable] if application.unreachable else []),
    }


def pipeline_fields(pipeline: PipelineProgress, application: ApplicationProgress) -> dict[str, Any]:
    """Return the object about a pipeline."""
    said = sentence(pipeline, application)
    return {
        "kind": "pipeline",
        "pipeline": pipeline.pipeline.name,
        "at_ms": application.at_ms,
        "observing": pipeline.pipeline.observe,
        "level": str(said.level),
        "says": said.text,
        "hops": [_hop_fields(each) for each in pipeline.hops],
        "states": list(pipeline.states),
        "escaped": list(pipeline.escaped),
        "open_transactions": [_transaction_fields(each, application.at_ms) for each in pipeline.open],
        "quarantine": list(map(_tally_fields, pipeline.quarantine.tallies)),
        "quarantine_cut": pipeline.quarantine.cut,
        "verdicts": None if pipeline.verdicts is None else asdict(pipeline.verdicts),
        "missing_topics": list(pipeline.missing),
        "problems": list(map(_problem_fields, pipeline.problems)),
        "warnings": list(map(_problem_fields, pipeline.warnings)),
    }


def _tally_fields(tally: QuarantineTally) -> dict[str, Any]:
    said = asdict(tally)
    del said["source_topic"]  # that of the pipeline; the example says it, too
    return said


def _worker_fields(member: DescribedMember, hops: list[HopProgress]) -> dict[str, Any]:
    return {
        "worker": member.name,
        "client_id": member.client_id,
        "host": member.host,
        "slots": {hop.name: member.slots_of(hop.source) for hop in hops},
        "partitions": {
            hop.name: [tp.partition for tp in member.assigned if tp.topic == hop.source] for hop in hops
        },
    }


def _hop_fields(hop: HopProgress) -> dict[str, Any]:
    return {
        "hop": hop.name,
        "source": hop.source,
        "lag": hop.lag,
        "records_per_s": None if hop.records_per_s is None else round(hop.records_per_s, 1),
        "changelog": hop.changelog,
        "changelog_bytes": hop.changelog_bytes,
        "local_bytes": list(hop.local_bytes),
        "partitions": [_partition_fields(each) for each in hop.partitions],
    }


def _partition_fields(partition: PartitionProgress) -> dict[str, Any]:
    fields = asdict(partition)
    number = fields.pop("number")
    return {"partition": number, **fields, "lag": partition.lag, "lag_to_end": partition.lag_to_end}


def _transaction_fields(transaction: OpenTransaction, now_ms: int) -> dict[str, Any]:
    age = age_s(transaction, now_ms)
    fields = asdict(transaction)
    topic, number = fields.pop("partition")
    return {
        "topic": topic,
        "partition": number,
        **fields,
        "age_s": None if age is None else round(age, 1),
    }


def _problem_fields(problem: Problem) -> dict[str, str]:
    return {"key": problem.key, "message": problem.message}
