"""``seqmark audit`` counts the copies in a topic, says what made them, and which rule loses nothing."""

from __future__ import annotations

import asyncio
import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import TypeAdapter, ValidationError

from processor.commands.console import bar, json_option, note_exit_code, result, say, shown, table_on_stdout
from processor.commands.files import replace_text
from processor.commands.reached import bootstrap_option, kafka_of, topic_name
from processor.commands.run.reset import read_time
from processor.config.load import load
from processor.errors import EXIT_DONE, EXIT_VIOLATION
from schemas.config.values import DurationMs

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.inspection.audit.audit import Audit
    from processor.inspection.audit.read import ReadExtent
    from processor.inspection.audit.show import PricePer
    from schemas.config import Kafka

_UNITS = {
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_PRICE = re.compile(rf"([0-9]+(?:\.[0-9]+)?)/({'|'.join(_UNITS)})")
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")


def _price(text: str) -> tuple[float, str]:
    found = _PRICE.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a price such as 0.10/GB; units: {', '.join(_UNITS)}")
    return float(found[1]), found[2]


def _percent(text: str) -> float:
    found = _PERCENT.fullmatch(text)
    if found is None or float(found[1]) > 100:
        raise click.BadParameter(f"{text!r} is not a share such as 1%")
    return float(found[1])


def _seconds(text: str) -> float:
    try:
        return float(TypeAdapter(DurationMs).validate_python(text)) / 1000
    except ValidationError as error:
        raise click.BadParameter(f"{text!r} {error.errors()[0]['msg']}") from None


@click.command()
@bootstrap_option(required=False)
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="In place of --bootstrap: a config; without TOPIC all sources of it.",
)
@click.argument("topics", nargs=-1, type=topic_name, metavar="TOPIC...")
@json_option
@click.option("--records", type=click.IntRange(min=1), metavar="N", help="About so many; not given: all.")
@click.option("--since", metavar="TIME", help="Only records from this ISO 8601 time on, with its zone.")
@click.option("--for", "seconds", type=_seconds, metavar="TIME", help="Read for about so long, such as 60s.")
@click.option("--price", type=_price, metavar="P/UNIT", help="What bytes cost, such as 0.10/GB.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT",
    help="A page with all of it; an older one is replaced.",
)
@click.option(
    "--fail-above", type=_percent, metavar="SHARE", help="Exit with 3 where more are copies, such as 1%."
)
@click.pass_context
def audit(  # noqa: PLR0913 - one argument per option
    ctx: click.Context,
    *,
    bootstrap: str | None,
    config: Path | None,
    topics: tuple[str, ...],
    records: int | None,
    since: str | None,
    seconds: float | None,
    price: tuple[float, str] | None,
    html: Path | None,
    fail_above: float | None,
    as_json: bool,
) -> None:
    """Count the copies in a topic, say what made them, and find the rule that drops them and nothing else.

    Needs the right to READ the topics, writes nothing into Kafka and joins no group. Where not all is read, the
    oldest records, the newest and what lies between are. Exit code 1: the broker or a topic cannot be read, or
    has no records; 2: the command line or the config is wrong; 3: more are copies than --fail-above.
    """
    kafka, topics = _reached(bootstrap, config, topics)
    if html is not None and not html.parent.is_dir():
        raise click.BadParameter(f"there is no folder {html.parent}", param_hint="--html")
    # numpy and the broker's client are slow to import: what is wrong is said at once.
    from processor.inspection.audit.read import ReadExtent  # noqa: PLC0415 - see above
    from processor.inspection.audit.show import PricePer, fields, page  # noqa: PLC0415 - as above

    extent = ReadExtent(None if since is None else read_time(since), records, seconds)
    per = None if price is None else PricePer(*price, _UNITS[price[1]])
    found, code = [], EXIT_DONE
    for topic in topics:
        each = audited(kafka, topic, extent, ())
        found.append(each)
        above = fail_above is not None and 100 * each.copies.count > fail_above * each.records
        code = EXIT_VIOLATION if above else code
        note_exit_code(code)
        if as_json:
            result(**fields(each, per))
        else:
            show(each, per)
        if above:
            say(f"{topic}: more than {fail_above:g} % of the records are copies", "bold red")
    if html is not None:
        replace_text(html, page(found, per))
        say(f"the page: {html}", "green")
    ctx.exit(code)


def _reached(
    bootstrap: str | None, config: Path | None, topics: tuple[str, ...]
) -> tuple[Kafka, tuple[str, ...]]:
    """Return how the cluster is reached, and the topics."""
    settings = None if config is None else load(config)
    if settings is not None and not topics:
        topics = tuple(each.source for each in settings.pipelines)
    if not topics:
        raise click.UsageError("name a topic, or a config with pipelines by -c")
    if settings is None and bootstrap is None:
        raise click.UsageError("say where the cluster is: --bootstrap H:P, or a config by -c")
    return kafka_of(str(bootstrap)) if settings is None else settings.kafka, topics


def audited(kafka: Kafka, topic: str, extent: ReadExtent, others: tuple[str, ...]) -> Audit:
    """Audit one topic, with a bar."""
    from processor.inspection.audit.audit import audit as run  # noqa: PLC0415 - as above

    with ExitStack() as drawn:

        def progress(offsets: int) -> Callable[[int], None]:
            drawn.close()  # the bar of the pass before
            return drawn.enter_context(bar(f"reading {topic}", offsets))

        return asyncio.run(run(kafka, topic, extent, others, progress))


def show(found: Audit, price: PricePer | None = None, *, stderr: bool = False) -> None:
    """Show an audit to people."""
    from processor.inspection.audit import show as said  # noqa: PLC0415 - as above

    for line in said.sentences(found, price):
        click.echo(shown(line).plain, err=stderr)
    if found.copies.count:
        table_on_stdout(said.WINDOW_TITLES, said.window_rows(found), right=(1, 2, 3), stderr=stderr)
    if found.outcomes:
        click.echo(f"rules, tried on {found.tried:,} records as if windows never ended:", err=stderr)
        table_on_stdout(said.RULE_TITLES, said.rule_rows(found), right=(2, 3, 4, 5), stderr=stderr)
    click.echo(shown(said.verdict(found)).plain, err=stderr)
    for note in (*found.notes, *(found.chosen.proposal.notes if found.chosen else ())):
        say(f"note: {note}", "yellow")
    say(f"{found.cpu_s:.1f} CPU seconds", "dim")
