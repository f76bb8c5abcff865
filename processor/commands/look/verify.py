"""``seqmark verify`` proves that a pipeline's topics hold what they must."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from processor.commands.chosen import chosen_pipelines
from processor.commands.console import (
    bar,
    config_option,
    json_option,
    note_exit_code,
    result,
    say,
    table_on_stdout,
)
from processor.config.load import load, require_pipelines, require_provable
from processor.errors import EXIT_DONE, EXIT_FAILED, EXIT_VIOLATION
from processor.ops.status_text import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from processor.verify.certificate import Certificate
    from processor.verify.report import VerifyReport
    from schemas.config import Pipeline, Settings

_NUMBERS = ("source", "sink", "duplicates", "quarantine", "pending")
_WITH_COLLISIONS = (*_NUMBERS[:-1], "collisions", "pending")
_COMPARED = ("dropped_looked_at", "dropped_unseen")
_ALL = (*_WITH_COLLISIONS, "redriven", "observed", "unproved", "backfilled", *_COMPARED)


@click.command()
@config_option
@json_option
@click.option("--pipeline", metavar="N", help="Name of the pipeline; not given: all of them.")
@click.pass_context
def verify(ctx: click.Context, config: Path, *, pipeline: str | None, as_json: bool) -> None:
    """Prove that source = sink + duplicates + quarantine, record by record.

    Reads the topics read_committed, judges the source once more, and compares byte for byte and in order. A
    worker may run meanwhile: what it has not committed is pending. Exit code 3: a rule is broken, with the
    first offsets per partition; 1: something cannot be read, or it was interrupted; 0: all is proved.
    """
    settings = load(config)
    require_pipelines(settings)
    chosen = chosen_pipelines(settings, pipeline)
    require_provable(settings, [each.name for each in chosen])
    note_exit_code(EXIT_FAILED)  # until all is proved
    began = time.monotonic()
    reports = asyncio.run(_verify(settings, chosen, _tell if as_json else lambda _: None))
    seconds = time.monotonic() - began
    code = EXIT_DONE if all(report.ok for report in reports) else EXIT_VIOLATION
    note_exit_code(code)
    if as_json:
        _conclude_for_programs(reports, seconds)
    else:
        _for_people(reports, seconds, collisions=any(map(_tells_apart, chosen)))
    changed = sorted({report.pipeline for report in reports if report.other_rules})
    if changed:
        say(f"pipelines.dedup is not what the worker judged by: {', '.join(changed)}", "yellow")
    ctx.exit(code)


async def _verify(
    settings: Settings, pipelines: list[Pipeline], done: Callable[[VerifyReport], None]
) -> list[VerifyReport]:
    # The client of the broker and numba are slow to import: a config that is wrong is said at once.
    from processor.kafka.topics.writers import require_own_sinks  # noqa: PLC0415 - see above
    from processor.verify.certificate import Certificate  # noqa: PLC0415 - see above

    await require_own_sinks(settings, pipelines)
    certificate = Certificate(settings, pipelines)
    total = await certificate.open()
    with bar("comparing", total) as advance:
        reports = await certificate.run(done, advance)
    for each in pipelines:
        _keep(settings, each, [report for report in reports if report.pipeline == each.name], certificate)
    return reports


def _keep(settings: Settings, pipeline: Pipeline, reports: list[VerifyReport], of: Certificate) -> None:
    """Note for `seqmark explain` what was compared; where that cannot be written, all is proved without."""
    from processor.verify.noted import keep_note  # noqa: PLC0415 - as above

    try:
        keep_note(settings, pipeline, reports, of.topic_ids, time.time_ns() // 1_000_000)
    except OSError as error:
        say(f"`seqmark explain` will not know of this certificate, it cannot be noted: {error}", "yellow")


def _tell(report: VerifyReport) -> None:
    result(
        pipeline=report.pipeline,
        partition=report.partition,
        source=report.source,
        sink=report.sink,
        duplicates=report.duplicates,
        quarantine=report.quarantine,
        collisions=report.collisions,
        redriven=report.redriven,
        observed=report.observed,
        violations=[
            {"offset": each.offset, "rule": each.rule.value, "detail": each.detail}
            for each in report.violations
        ],
        violations_total=report.total,
        pending=report.pending,
        unproved=report.unproved,
        backfilled=report.backfilled,
        dropped_looked_at=report.dropped_looked_at,
        dropped_unseen=report.dropped_unseen,
        judged_from=report.judged_from,
        before_verdicts=report.before_verdicts,
        unjudged=report.unjudged,
        since_reset=None if report.reset_ms is None else _when(report),
        **{"from": report.start, "to": report.stop},
    )


def _conclude_for_programs(reports: list[VerifyReport], seconds: float) -> None:
    totals = {name: sum(getattr(report, name) for report in reports) for name in _ALL}
    result(
        ok=all(report.ok for report in reports),
        partitions=len(reports),
        **totals,
        violations=sum(report.total for report in reports),
        seconds=round(seconds, 3),
    )


def _tells_apart(pipeline: Pipeline) -> bool:
    """Whether records of a pipeline can collide."""
    return pipeline.id_dedup is not None and pipeline.id_dedup.fingerprint is not None


def _for_people(reports: list[VerifyReport], seconds: float, *, collisions: bool) -> None:
    numbers = _WITH_COLLISIONS if collisions else _NUMBERS
    for name in ("backfilled", "observed"):
        if any(getattr(report, name) for report in reports):
            numbers = (*numbers[:-1], name, "pending")
    rows = [
        (
            report.pipeline,
            str(report.partition),
            *(f"{getattr(report, name):,}" for name in numbers),
            ("ok" if report.ok else count(report.total, "violation")) + _since([report]),
        )
        for report in reports
    ]
    right = range(1, 2 + len(numbers))
    table_on_stdout(("pipeline", "partition", *numbers, "verdict"), rows, right=right)
    for report in reports:
        for each in report.violations:
            click.echo(f"{report.pipeline} {report.partition}:{each.offset} {each.rule.value}: {each.detail}")
        if (left := report.total - len(report.violations)) > 0:
            given_up = "; the rest was counted, not compared" if report.given_up else ""
            click.echo(f"{report.pipeline} {report.partition}: {left:,} more{given_up}")
    for report in reports:
        for limit in _limits(report):
            click.echo(f"{report.pipeline} {report.partition}: {limit}")
    source = sum(report.source for report in reports)
    wrong = sum(report.total for report in reports)
    unproved = sum(report.unproved for report in reports)
    note = f", {unproved:,} dropped of which that is not proved" if unproved else ""
    if backfilled := sum(report.backfilled for report in reports):
        note += f", {backfilled:,} dropped by a backfill"
    verdict = f"broken, {count(wrong, 'violation')} in {source:,} records"
    if not wrong:
        verdict = f"ok, {source:,} records of {count(len(reports), 'partition')}"
    click.echo("\n".join([f"certificate: {verdict}{note}{_since(reports)}", *_compared(reports)]))
    say(f"{seconds:.1f} s, {source / max(seconds, 1e-9):,.0f} records/s", "dim")


def _limits(report: VerifyReport) -> Iterator[str]:
    """Say of what nothing is proved, or less."""
    if report.judged_from > report.start:
        why = "what the clock read is no longer known"
        if report.backfill:
            why = f"ids may be remembered that backfill {report.backfill} has brought"
        yield (
            f"verdicts are proved from offset {report.judged_from} on; before it {why}, and receipts were "
            "trusted"
        )
    if report.backfilled:
        yield (
            f"{count(report.backfilled, 'record')} dropped by what backfill {report.backfill} has brought, "
            "which the source does not hold"
        )
    if report.redriven:
        yield (
            f"redriven {report.redriven:,}: judged again out of quarantine, which still holds them; each is "
            "in the sink or dropped, behind what had come by then"
        )
    if report.observed_by_config:
        yield (
            "there is no duplicates topic: nothing but the config (observe = true) says which records passed "
            "because the pipeline observed"
        )
    if report.secret_unknown:
        yield (
            "fingerprints, and what receipts show of content, are not compared: nothing says by which secret "
            "they were made"
        )
    if report.before_verdicts:
        yield (
            f"{count(report.before_verdicts, 'record')} that pass lie before the first verdict record: with "
            'output = "verdicts" nothing is proved of them'
        )
    if report.unjudged:
        yield (
            f"begins at origin {report.start}; retained before it, not judged: up to "
            f"{count(report.unjudged, 'record')}"
        )


def _compared(reports: list[VerifyReport]) -> Iterator[str]:
    """Say how many dropped records are new: the rules of judging were kept, and have lost them."""
    looked_at, unseen = (sum(getattr(report, name) for report in reports) for name in _COMPARED)
    if looked_at:
        said = f"of {looked_at:,} dropped records looked at, {unseen:,} have a content that never passed"
        places = [f"{each.pipeline} {each.partition}:{at}" for each in reports for at in each.unseen_at][:2]
        see = ": see 'New records that are dropped' in docs/guarantees.md"
        yield said + (f", such as {' and '.join(places)}{see}" if unseen else "")


def _since(reports: list[VerifyReport]) -> str:
    """Say since which reset all is compared; nothing where there was none."""
    begun = [report for report in reports if report.reset_ms is not None]
    if not begun:
        return ""
    some = "" if len(begun) == len(reports) else f" ({len(begun)} of the partitions)"
    last = max(begun, key=lambda report: report.reset_ms or 0)
    return f", since the reset of {_when(last)}{some}"


def _when(report: VerifyReport) -> str:
    """Return when a report's reset was, as people and programs read it."""
    if not report.reset_ms:
        return "an unknown time"
    return datetime.fromtimestamp(report.reset_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
