"""``seqmark check`` says everything that is wrong, of the file and of the topics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import click

from processor.commands.console import STYLES, config_option, json_option, result, say, say_problems
from processor.config.load import load, sink_problems
from processor.errors import (
    EXIT_CONFIG,
    EXIT_DONE,
    EXIT_FAILED,
    ConfigError,
    Problem,
    SeqmarkError,
    StopError,
)
from processor.ops.status_text import count

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from processor.kafka.topics.ensure import TopicsReport
    from schemas.config import Settings


BASE_BYTES = 300_000_000
"""A worker without state, see docs/sizing.md."""
INDEX_SHARE = 25 / 22
"""Bytes of memory per byte of local state: an id takes up to 25 in the index, and 20 to 24 on the disk."""


class Finding(NamedTuple):
    """One line of the report."""

    level: str
    """``problem``, ``warning`` or ``info``."""
    problem: Problem


@click.command()
@config_option
@json_option
@click.pass_context
def check(ctx: click.Context, config: Path, *, as_json: bool) -> None:
    """Validate a config file, and with a broker at hand its topics too.

    Every problem is said at once, with its key and what would be right. Exit code 2: the config is
    wrong; 1: the topics are; 0: fine, or no broker answers and only the config was checked.
    """
    findings, code = _config(config)
    _report(findings, as_json=as_json)
    _conclude(findings, code, as_json=as_json)
    ctx.exit(code)


def _config(config: Path) -> tuple[list[Finding], int]:
    try:
        settings = load(config)
        problems = sink_problems(settings)
    except ConfigError as error:
        problems = list(error.problems)
        settings = None
    if problems or settings is None:
        return [Finding("problem", problem) for problem in problems], EXIT_CONFIG
    # The client of the broker is slow to import: a config that is wrong is said at once.
    from processor.kafka.topics.ensure import UnreachableError, ensure  # noqa: PLC0415 - see above

    try:
        report = asyncio.run(ensure(settings, create=False))
    except ConfigError as error:
        return [Finding("problem", problem) for problem in error.problems], EXIT_CONFIG
    except UnreachableError as error:
        note = Problem("kafka.bootstrap_servers", f"the topics were not checked: {error}")
        return [Finding("info", note), *_filters(settings), *_memory(settings, {})], EXIT_DONE
    except StopError as error:
        return [Finding("problem", Problem("kafka", str(error)))], EXIT_FAILED
    findings, code = _topics(settings, report)
    findings += _filters(settings)
    sources = {row.pipeline: row.partitions for row in report.rows}
    findings += _memory(settings, sources)
    if code == EXIT_DONE:
        findings += _states(settings)
    return findings, code


def _filters(settings: Settings) -> list[Finding]:
    """Say how much memory the Bloom filters of each pipeline take, even while no ids come."""
    from processor.judges.factory import mode_of  # noqa: PLC0415 - as above

    notes = [mode_of(pipeline).memory().note for pipeline in settings.pipelines]
    return [
        Finding("info", Problem(f"pipelines.{index}.dedup.{note[0]}", note[1]))
        for index, note in enumerate(notes)
        if note is not None
    ]


def _memory(settings: Settings, partitions: Mapping[str, int]) -> list[Finding]:
    """Warn where a worker needs more at its start than the memory limit.

    Known are filters, by the config, of all partitions; and ids by what a worker's state folder holds of them.
    """
    limit = settings.worker.memory_limit
    if limit is None:
        return []
    from processor.judges.factory import mode_of  # noqa: PLC0415 - as above
    from processor.state.home import sizes  # noqa: PLC0415 - as above

    needs = {pipeline.name: mode_of(pipeline).memory() for pipeline in settings.pipelines}
    filters = sum(partitions.get(name, 0) * need.filter_bytes for name, need in needs.items())
    exact = [name for name, need in needs.items() if need.follows_state]
    worker = settings.worker
    ids = int(max(sizes(worker.state_dir, str(worker.application_id), exact), default=0) * INDEX_SHARE)
    found = []
    if filters and BASE_BYTES + filters > limit:
        note = (
            f"the filters of all partitions take {filters / 1e6:,.0f} MB, and a worker about "
            f"{BASE_BYTES / 1e6:.0f} MB beside them: one that has all partitions cannot start within "
            f"{limit / 1e6:,.0f} MB. Raise it, or start so many workers that none has to have them all"
        )
        found.append(Finding("warning", Problem("worker.memory_limit", note)))
    if ids and BASE_BYTES + ids > limit:
        note = (
            f"the state in {worker.state_dir} is of ids that take up to {ids / 1e6:,.0f} MB, and a "
            f"worker about {BASE_BYTES / 1e6:.0f} MB beside them: it may not be able to start within "
            f"{limit / 1e6:,.0f} MB"
        )
        found.append(Finding("warning", Problem("worker.memory_limit", note)))
    return found


def _states(settings: Settings) -> list[Finding]:
    """Return a warning for each pipeline whose state was made by other rules than its config has now."""
    from processor.reset.changed import changed  # noqa: PLC0415 - as above

    try:
        return [Finding("warning", problem) for problem in asyncio.run(changed(settings))]
    except SeqmarkError as error:
        note = Problem("kafka.bootstrap_servers", f"the changelogs were not looked at: {error}")
        return [Finding("warning", note)]


def _topics(settings: Settings, report: TopicsReport) -> tuple[list[Finding], int]:
    findings = [Finding("problem", problem) for problem in report.problems]
    findings += [Finding("warning", warning) for warning in report.warnings]
    for row in report.missing:
        what = f"{row.purpose} of pipeline {row.pipeline} does not exist"
        if settings.worker.create_topics:
            note = f"{what}; the worker will create it with {count(row.partitions, 'partition')}"
            findings.append(Finding("info", Problem(row.topic, note)))
        else:
            message = f"{what}: create it with `seqmark topics`, or set worker.create_topics"
            findings.append(Finding("problem", Problem(row.topic, message)))
    wrong = any(finding.level == "problem" for finding in findings)
    return findings, EXIT_FAILED if wrong else EXIT_DONE


def _report(findings: list[Finding], *, as_json: bool) -> None:
    for level in STYLES:
        found = [finding.problem for finding in findings if finding.level == level]
        if as_json:
            for problem in found:
                result(key=problem.key, level=level, message=problem.message)
        elif found:
            say(f"{count(len(found), level) if level != 'info' else 'to know'}:", STYLES[level])
            say_problems(found, level)


def _conclude(findings: list[Finding], code: int, *, as_json: bool) -> None:
    if as_json or code != EXIT_DONE:
        return
    unchecked = any(finding.problem.key == "kafka.bootstrap_servers" for finding in findings)
    what = "the config is right" if unchecked else "the config and its topics are right"
    say(what, "green")
