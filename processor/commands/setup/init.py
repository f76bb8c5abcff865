"""``seqmark init`` audits a topic, and writes a config with the rule that loses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from processor.commands.console import json_option, result, say, shown
from processor.commands.look.audit import audited, show
from processor.commands.reached import bootstrap_option, kafka_of, read_text, topic_name
from processor.errors import EXIT_DONE, StopError
from processor.ops.status_text import count

if TYPE_CHECKING:
    from processor.inspection.audit.audit import Audit
    from processor.inspection.proposal.choose import Proposal
    from processor.inspection.proposal.names import PipelineNames


@click.command()
@bootstrap_option(required=True)
@click.option("--topic", type=topic_name, required=True, metavar="T", help="The topic with duplicates.")
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
    type=click.IntRange(1),
    default=1_000_000,
    metavar="N",
    help="How many records to look at: the oldest, the newest, and what lies between.",
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
    """Audit a topic and write a config: mode, id or sequence, and window, each with its reason.

    A rule is proposed only if it drops nothing that never passed among all that was read. Writes nothing into
    Kafka, and joins no group. Exit code 1: the broker or the topic cannot be read, or no rule is safe; 2: the
    command line is wrong, or FILE is there already.
    """
    _require_room(output, force=force)
    kafka = kafka_of(bootstrap)
    # numpy and the broker's client are slow to import: what is wrong is said at once.
    from processor.inspection.audit.read import ReadExtent  # noqa: PLC0415 - see above
    from processor.inspection.audit.show import verdict  # noqa: PLC0415 - as above
    from processor.inspection.proposal.names import PipelineNames  # noqa: PLC0415 - as above
    from processor.inspection.proposal.written import config_text  # noqa: PLC0415 - as above

    names = PipelineNames.after(topic)
    found = audited(kafka, topic, ReadExtent(records=records), names.outputs)
    if not as_json:
        # A result; where the config itself goes to stdout that is the whole result.
        show(found, stderr=output is None)
    if found.chosen is None:
        raise StopError(f"no config was written for {topic}: {verdict(found)}")
    proposal = found.chosen.proposal
    seen = f"{count(found.records, 'record')} in {count(found.partitions, 'partition')}"
    text = config_text(topic, seen, kafka, names, proposal)
    read_text(text)  # it must be right, whatever the topic holds
    if output is not None:
        _write(output, text, force=force)
    _report(found, names, proposal, text, output, as_json=as_json)
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


def _write(output: Path, text: str, *, force: bool) -> None:
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise StopError(f"{output} cannot be written: {error.strerror}") from error


def _report(
    found: Audit, names: PipelineNames, proposal: Proposal, text: str, output: Path | None, *, as_json: bool
) -> None:
    existing = sorted(found.existing)
    if as_json:
        from processor.inspection.audit.show import fields  # noqa: PLC0415 - as above

        told = fields(found) | {"notes": [*found.notes, *proposal.notes]}
        result(
            **told,
            pipeline=names.pipeline,
            dedup=proposal.dedup,
            reasons=proposal.reasons,
            existing=existing,
            config=text,
            output=None if output is None else str(output),
        )
        return
    for name in existing:
        say(f"note: the topic {name} exists already: name another one, unless it is this pipeline's", "yellow")
    for key, reason in proposal.reasons.items():
        click.echo(shown(f"  {key} = {proposal.dedup[key]!r}: {reason}").plain, err=output is None)
    file = "FILE" if output is None else output
    if output is None:
        click.echo(text, nl=False)
    else:
        say(f"the config: {output}", "green")
    then = f"seqmark worker -c {file}, seqmark read -c {file} {names.sink}"
    say(f"next: seqmark check -c {file}, seqmark simulate -c {file}, {then}", "dim")
