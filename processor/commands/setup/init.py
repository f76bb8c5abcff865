"""``seqmark init`` looks at a topic, proposes how to judge its records, and writes a config."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import TypeAdapter, ValidationError

from processor.commands.console import json_option, people, result, say, shown
from processor.config.load import load
from processor.errors import EXIT_DONE, StopError
from processor.ops.number_table import NumberTable
from processor.ops.status_text import count
from schemas.config.reference import ENV_DELIMITER, ENV_PREFIX
from schemas.config.values import Servers, topic_fault

if TYPE_CHECKING:
    from rich.console import Console

    from processor.inspection.proposal.candidates import Candidate
    from processor.inspection.proposal.choose import Proposal
    from processor.inspection.proposal.names import PipelineNames
    from processor.inspection.proposal.sample import TopicSample
    from schemas.config import Kafka, Settings

_OURS = f"{ENV_PREFIX}KAFKA{ENV_DELIMITER}"
_SERVERS = f"{_OURS}BOOTSTRAP_SERVERS"
_SHOWN = 12
"""Candidates in the table."""
_ANY = """
[worker]
application_id = "init"
[[pipelines]]
name = "init"
source = "source"
sink = "sink"
[pipelines.dedup]
mode = "insert-id"
id = [{ from = "key" }]
window = "1d"
"""
"""What a config has beside how the cluster is reached."""


def _bootstrap(text: str) -> str:
    try:
        servers: str = TypeAdapter(Servers).validate_python(text)
    except ValidationError as error:
        raise click.BadParameter(error.errors()[0]["msg"]) from None
    return servers


def _topic(text: str) -> str:
    if (fault := topic_fault(text)) is not None:
        raise click.BadParameter(f"{text!r} {fault}")
    return text


@click.command()
@click.option(
    "--bootstrap",
    type=_bootstrap,
    required=True,
    envvar=_SERVERS,
    show_envvar=True,
    metavar="H:P",
    help="Addresses of the cluster. Security comes from SEQMARK_KAFKA__... variables.",
)
@click.option("--topic", type=_topic, required=True, metavar="T", help="The topic with duplicates.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write the config; not given: to stdout.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@click.option(
    "--records",
    type=click.IntRange(1, 100_000),
    default=1_000,
    metavar="N",
    help="How many records to look at, the newest of each partition.",
)
@json_option
@click.pass_context
def init(
    ctx: click.Context,
    *,
    bootstrap: str,
    topic: str,
    output: Path | None,
    force: bool,
    records: int,
    as_json: bool,
) -> None:
    """Look at a topic and propose a config: mode, id or sequence, and window, each with its reason.

    Reads the newest records, writes nothing into Kafka, and joins no group. Exit code 1: the broker or the
    topic cannot be read, or has no records; 2: the command line is wrong, or FILE is there already.
    """
    _require_room(output, force=force)
    kafka = _kafka(bootstrap)
    # numpy and the broker's client are slow to import: what is wrong is said at once.
    from processor.inspection.proposal.choose import propose  # noqa: PLC0415 - see above
    from processor.inspection.proposal.names import PipelineNames  # noqa: PLC0415 - as above
    from processor.inspection.proposal.observed import observe  # noqa: PLC0415 - as above
    from processor.inspection.proposal.sample import take_sample  # noqa: PLC0415 - as above
    from processor.inspection.proposal.written import config_text  # noqa: PLC0415 - as above

    say(f"looking at up to {count(records, 'record')} of {topic} ...", "dim")
    names = PipelineNames.after(topic)
    sample = asyncio.run(take_sample(kafka, topic, records, names.outputs))
    proposal = propose(observe(sample.records))
    if proposal is None:
        raise StopError(
            f"{count(len(sample.records), 'record')} of {topic} were looked at; they have neither values nor "
            "keys or headers of printable names that tell them apart: there is nothing to judge by"
        )
    seen = f"{count(len(sample.records), 'record')} in {count(sample.partitions, 'partition')}"
    text = config_text(topic, seen, kafka, names, proposal)
    _read(text)  # it must be right, whatever the topic holds
    if output is not None:
        _write(output, text, force=force)
    _report(topic, sample, names, proposal, text, output, as_json=as_json)
    ctx.exit(EXIT_DONE)


def _require_room(output: Path | None, *, force: bool) -> None:
    if output is None:
        return
    wrong = None
    if output.exists() and not force:
        wrong = f"{output} is there already; --force replaces it"
    elif not output.parent.is_dir():
        wrong = f"there is no folder {output.parent}"
    if wrong:
        raise click.BadParameter(wrong, param_hint="-o")


def _kafka(bootstrap: str) -> Kafka:
    """Return how the cluster is reached: the address given, and security from the environment."""
    return _read(f'[kafka]\nbootstrap_servers = "{bootstrap}"\n{_ANY}').kafka


def _read(text: str) -> Settings:
    """Read a config as every command does, with what the environment says of Kafka but the address.

    Raises:
        ConfigError: It is wrong.
    """
    given = {name: value for name, value in os.environ.items() if name.startswith(_OURS) and name != _SERVERS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proposed.toml"
        path.write_text(text, encoding="utf-8")
        return load(path, given)


def _write(output: Path, text: str, *, force: bool) -> None:
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise StopError(f"{output} cannot be written: {error.strerror}") from error


def _report(
    topic: str,
    sample: TopicSample,
    names: PipelineNames,
    proposal: Proposal,
    text: str,
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    existing = sorted(sample.existing)
    if as_json:
        result(
            topic=topic,
            partitions=sample.partitions,
            records=len(sample.records),
            pipeline=names.pipeline,
            dedup=proposal.dedup,
            reasons=proposal.reasons,
            notes=[*sample.notes, *proposal.notes],
            existing=existing,
            candidates=[_fields(proposal, each) for each in proposal.candidates],
            config=text,
            output=None if output is None else str(output),
        )
        return
    # A result, like every table; where the config itself goes to stdout it is the whole result.
    told = people(stderr=output is None)
    _table(proposal, told)
    for note in (*sample.notes, *proposal.notes):
        say(f"note: {note}", "yellow")
    for name in existing:
        say(f"note: the topic {name} exists already: name another one, unless it is this pipeline's", "yellow")
    told.print(shown(f"proposed: {proposal.reasons['mode']}"), soft_wrap=True)
    for key, reason in proposal.reasons.items():
        if key != "mode":
            told.print(shown(f"  {key} = {proposal.dedup[key]!r}: {reason}"), soft_wrap=True)
    file = "FILE" if output is None else output
    if output is None:
        click.echo(text, nl=False)
    else:
        say(f"the config: {output}", "green")
    # A count that begins again is not in a sample of the newest records: all that is retained shows it.
    simulate = f"seqmark simulate -c {file}, " if "sequence" in proposal.dedup else ""
    then = f"{simulate}seqmark worker -c {file}, seqmark read -c {file} {names.sink}"
    say(f"next: seqmark check -c {file}, {then}", "dim")


def _table(proposal: Proposal, told: Console) -> None:
    """Show what was looked at, the likeliest first, and by an arrow what was chosen."""
    titles = "candidate", "in records", "different", "copies", "other content", "rising"
    table = NumberTable(*titles)
    for column in table.columns[1:5]:
        column.justify = "right"
    chosen = [each for each in proposal.candidates if each.places[0] in proposal.chosen]
    listed = proposal.candidates[:_SHOWN]
    listed += [each for each in chosen if each not in listed]
    for each in listed:
        mark = "→ " if each in chosen else "  "
        share = f"{100 * each.present // each.records} %"
        numbers = (f"{number:,}" for number in (each.distinct, each.copies, each.clashes))
        table.add_row(shown(f"{mark}{each}"), share, *numbers, shown(_rising(proposal, each) or "-"))
    left = len(proposal.candidates) - len(listed)
    told.print(table)
    if left > 0:
        say(f"and {count(left, 'other place')}; --json lists them", "dim")


def _rising(proposal: Proposal, each: Candidate) -> str | None:
    rises = proposal.rises.get(each.places[0])
    return None if rises is None else f"per {rises.scope}{', one by one' if rises.contiguous else ''}"


def _fields(proposal: Proposal, each: Candidate) -> dict[str, Any]:
    place = each.places[0]
    return {
        "from": place.source,
        "name": place.name,
        "present": each.present,
        "distinct": each.distinct,
        "copies": each.copies,
        "clashes": each.clashes,
        "rising": _rising(proposal, each),
        "chosen": place in proposal.chosen,
    }
