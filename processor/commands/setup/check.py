"""``seqmark check`` says everything that is wrong, of the file and of the topics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from processor.commands.console import STYLES, config_option, json_option, report_problems, say
from processor.config.load import load, require_sinks
from processor.errors import EXIT_CONFIG, EXIT_DONE, EXIT_FAILED, ConfigError, Problem, SeqmarkError, StopError
from processor.ops.status_text import count
from processor.state.home import sizes

if TYPE_CHECKING:
    from pathlib import Path

    from processor.kafka.topics.plan import ClusterPlan
    from schemas.config import Settings

_UNCHECKED = "kafka.bootstrap_servers"
BASE_BYTES = 300_000_000
"""A worker without state, see docs/sizing.md."""
INDEX_SHARE = 25 / 22
"""Bytes of memory per byte of local state: an id takes up to 25 in the index, and 20 to 24 on the disk."""


@click.command()
@config_option
@json_option
@click.pass_context
def check(ctx: click.Context, config: Path, *, as_json: bool) -> None:
    """Validate a config file, and with a broker at hand its topics too.

    Every problem is said at once, with its key and what would be right. Exit code 2: the config is
    wrong; 1: the topics are; 0: fine, or no broker answers and only the config was checked.
    """
    found: dict[str, list[Problem]] = {level: [] for level in STYLES}
    code = _look(config, found)
    for level, problems in found.items():
        report_problems(problems, level, as_json=as_json)
    if code == EXIT_DONE and not as_json:
        all_checked = not any(each.key == _UNCHECKED for problems in found.values() for each in problems)
        say(f"the config {'and its topics are' if all_checked else 'is'} right", "green")
    ctx.exit(code)


def _look(config: Path, found: dict[str, list[Problem]]) -> int:
    """Put what there is to say into ``found``, by level; return the exit code."""
    try:
        settings = load(config)
        require_sinks(settings)
        # The client of the broker is slow to import: a config that is wrong is said at once.
        from processor.kafka.topics.ensure import UnreachableError, ensure  # noqa: PLC0415 - see above

        report: ClusterPlan | None = None
        try:
            report = asyncio.run(ensure(settings, create=False))
        except UnreachableError as error:
            found["info"].append(Problem(_UNCHECKED, f"the topics were not checked: {error}"))
    except ConfigError as error:
        found["problem"] += error.problems
        return EXIT_CONFIG
    except StopError as error:
        found["problem"].append(Problem("kafka", str(error)))
        return EXIT_FAILED
    if report is not None:
        _topics(settings, report, found)
    _memory(settings, report, found)
    if found["problem"]:
        return EXIT_FAILED
    if report is not None:
        found["warning"] += _states(settings)
    return EXIT_DONE


def _memory(settings: Settings, report: ClusterPlan | None, found: dict[str, list[Problem]]) -> None:
    """Say what memory Bloom filters take, even without ids; warn where a worker needs more than its limit.

    Known are filters, by the config, of all partitions; and ids by what a worker's state folder holds of them.
    """
    from processor.judges.factory import mode_of  # noqa: PLC0415 - as above

    worker, limit = settings.worker, settings.worker.memory_limit
    needs = {pipeline.name: mode_of(pipeline).memory() for pipeline in settings.pipelines}
    for index, need in enumerate(needs.values()):
        if need.note is not None:
            key, note = need.note
            found["info"].append(Problem(f"pipelines.{index}.dedup.{key}", note))
    if limit is None:
        return
    partitions = {plan.pipeline: plan.partitions for plan in report.topics} if report else {}
    filters = sum(partitions.get(name, 0) * need.filter_bytes for name, need in needs.items())
    exact = [name for name, need in needs.items() if need.follows_state]
    ids = int(max(sizes(worker.state_dir, str(worker.application_id), exact), default=0) * INDEX_SHARE)
    beside = f"MB, and a worker about {BASE_BYTES / 1e6:.0f} MB beside them"
    within = f"within {limit / 1e6:,.0f} MB"
    notes = []
    if filters and BASE_BYTES + filters > limit:
        notes.append(
            f"the filters of all partitions take {filters / 1e6:,.0f} {beside}: one that has all partitions "
            f"cannot start {within}. Raise it, or start so many workers that none has to have them all"
        )
    if ids and BASE_BYTES + ids > limit:
        notes.append(
            f"the state in {worker.state_dir} is of ids that take up to {ids / 1e6:,.0f} {beside}: it may "
            f"not be able to start {within}"
        )
    found["warning"] += [Problem("worker.memory_limit", note) for note in notes]


def _states(settings: Settings) -> list[Problem]:
    """Return a warning for each pipeline whose state was made by other rules than its config has now."""
    from processor.reset.changed import changed  # noqa: PLC0415 - as above

    try:
        return asyncio.run(changed(settings))
    except SeqmarkError as error:
        return [Problem(_UNCHECKED, f"the changelogs were not looked at: {error}")]


def _topics(settings: Settings, report: ClusterPlan, found: dict[str, list[Problem]]) -> None:
    found["problem"] += report.problems
    found["warning"] += report.warnings
    for plan in report.missing:
        what = f"{plan.purpose} of pipeline {plan.pipeline} does not exist"
        if settings.worker.create_topics:
            note = f"{what}; the worker will create it with {count(plan.partitions, 'partition')}"
            found["info"].append(Problem(plan.topic, note))
        else:
            message = f"{what}: create it with `seqmark topics`, or set worker.create_topics"
            found["problem"].append(Problem(plan.topic, message))
