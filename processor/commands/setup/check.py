"""``seqmark check`` says everything that is wrong, of the file and of what it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from processor.commands.console import (
    CONFIG_WRONG,
    LEVELS,
    config_option,
    json_option,
    list_problems,
    note_exit_code,
    repeat_on_stderr,
    say,
)
from processor.config.load import load, require_aggregates
from processor.errors import EXIT_CONFIG, EXIT_DONE, EXIT_FAILED, ConfigError, Problem
from processor.inspection.findings import Findings, Level
from processor.ops.status_text import count
from schemas.config import TopicInput

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.config import Settings


@click.command()
@config_option
@json_option
@click.option(
    "--require-broker", is_flag=True, help="Brokers that cannot be reached are an error, with exit code 1."
)
@click.option(
    "--offline",
    is_flag=True,
    help="Look at the file and at this machine only, such as where brokers have other names.",
)
@click.pass_context
def check(ctx: click.Context, config: Path, *, require_broker: bool, offline: bool, as_json: bool) -> None:
    """Validate a config file and all that it names, as far as it can be reached.

    Looked at are the file, the models and checkpoints of aggregates, the state folder and what it holds and,
    with a broker at hand, the topics and the states in the changelogs. All problems are said at once, each with
    its place and what would be right. Exit code 2: the config is wrong; 1: the topics are, the brokers' host
    does not resolve, or no broker answers and --require-broker is given; 0: fine, or no broker answers or was
    to be asked (--offline), and a warning says what was not checked.
    """
    if offline and require_broker:
        raise ConfigError(
            [Problem("--offline", "asks no broker, which --require-broker wants: give one of them")]
        )
    found = Findings()
    code = _look(config, found, require_broker=require_broker, offline=offline)
    note_exit_code(code)
    if not as_json and [problem.key for problem in found.problems] == [str(config)]:
        raise ConfigError(found.problems)  # nothing could be looked at: there is no result
    # People see the end of a list first.
    for level in LEVELS if as_json else reversed(LEVELS):
        list_problems(found.of(level), level, as_json=as_json)
    if not as_json:
        heading = f"{count(len(found.problems), 'problem')}"
        repeat_on_stderr(found.problems, f"{heading} {CONFIG_WRONG}" if code == EXIT_CONFIG else f"{heading}:")
        if code == EXIT_DONE:
            _conclude(found)
    ctx.exit(code)


def _look(config: Path, found: Findings, *, require_broker: bool, offline: bool) -> int:
    """Put what there is to say into ``found``; return the exit code."""
    try:
        settings = load(config)
        require_aggregates(settings)
        found.ok("config", str(config), f"names {_counted(settings)}, and every key is right")
        # The client of the broker and numba are slow to import: a config that is wrong is said at once.
        from processor.inspection.check import machine  # noqa: PLC0415 - see above
        from processor.inspection.check.cluster import (  # noqa: PLC0415 - see above
            BROKER,
            KEY,
            TOPICS,
            UNCHECKED,
            check_cluster,
        )

        for index, batch in enumerate(settings.batches):
            if isinstance(batch.input, TopicInput):
                found.note(
                    TOPICS,
                    f"batches.{index}.input.topic",
                    "was not looked at: `seqmark batch` does as it begins",
                )
        if not settings.pipelines and not settings.aggregates:
            return EXIT_DONE  # of batches alone: no worker and no query is named
        if offline:
            found.warning(BROKER, KEY, f"{UNCHECKED}: --offline asks no broker")
            plan = None
        else:
            plan = check_cluster(settings, found, require_broker=require_broker)
        machine.check_memory(settings, plan, found)
        if settings.pipelines:
            machine.check_state_folder(settings, found)
        machine.check_checkpoints(settings, found)
    except ConfigError as error:
        found.add("config", Level.PROBLEM, error.problems)
        return EXIT_CONFIG
    return EXIT_FAILED if found.problems else EXIT_DONE


def _counted(settings: Settings) -> str:
    batches = len(settings.batches)
    parts = [(len(settings.pipelines), "pipeline"), (len(settings.aggregates), "aggregate")]
    counted = [count(number, what) for number, what in parts if number]
    counted += [f"{batches} batch{'es' if batches > 1 else ''}"] if batches else []
    return " and ".join(counted)


def _conclude(found: Findings) -> None:
    """Say at the end, where a look at a list is not enough, what was not looked at."""
    unreached = [each.message for each in found.warnings if each.key == "kafka.bootstrap_servers"]
    if unreached:
        say(f"the config is right; {unreached[0]}", "yellow")
    else:
        say("the config and its topics are right", "green")
