"""``seqmark simulate`` predicts what windows, modes and backends would do, and recommends a config."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import TypeAdapter, ValidationError

from processor.commands.chosen import chosen_pipelines
from processor.commands.console import bar, config_option, json_option, result, say, shown, table_on_stdout
from processor.commands.files import replace_text
from processor.commands.run.reset import read_time
from processor.config.load import load, require_pipelines
from processor.errors import EXIT_DONE, ConfigError
from schemas.config.values import DurationMs

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.inspection.audit.read import ReadExtent
    from processor.inspection.simulate.forecast import Forecast, Simulation
    from processor.inspection.simulate.recommend import Recommendation
    from schemas.config import Pipeline, Settings

_WINDOWS = "1h,1d,7d,30d"
_MOST_WINDOWS = 20


def _windows(text: str) -> list[int]:
    names = [each.strip() for each in text.split(",") if each.strip()]
    if not names or len(names) > _MOST_WINDOWS:
        raise click.BadParameter(f"give 1 to {_MOST_WINDOWS} windows such as {_WINDOWS}")
    try:
        return [TypeAdapter(DurationMs).validate_python(name) for name in names]
    except ValidationError as error:
        raise click.BadParameter(f"{text!r} {error.errors()[0]['msg']}") from None


@click.command()
@config_option
@json_option
@click.option("--pipeline", metavar="N", help="Name of the pipeline; not given: all of them.")
@click.option("--since", metavar="TIME", help="Only records from this ISO 8601 time on, with its zone.")
@click.option(
    "--records", type=click.IntRange(min=1), metavar="N", help="About so many records, the newest ones."
)
@click.option(
    "--windows",
    "windows_ms",
    type=_windows,
    default=_WINDOWS,
    metavar="W,W...",
    help="Windows to compare, beside the config's.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT",
    help="A page with all of it; an older one is replaced.",
)
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT.toml",
    help="The config with what is recommended.",
)
@click.option("--force", is_flag=True, help="Replace OUT.toml if it is there.")
@click.pass_context
def simulate(  # noqa: PLR0913 - one argument per option
    ctx: click.Context,
    *,
    config: Path,
    pipeline: str | None,
    since: str | None,
    records: int | None,
    windows_ms: list[int],
    html: Path | None,
    write: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Predict duplicates, memory, disk and CPU for a grid of modes and windows, and recommend a config.

    Reads what is retained of the source once, read_committed; writes nothing into Kafka and joins no group. Of
    ids a sample is looked at, where not all fit: then each number has an interval. Exit code 1: the broker or
    the topic cannot be read, or has no records; 2: the config or the command line is wrong, or OUT.toml is
    there already.
    """
    settings = load(config)
    require_pipelines(settings)
    chosen = chosen_pipelines(settings, pipeline)
    _require_room(config, html, write, force=force)
    if write is not None:
        from processor.inspection.simulate.written import why_not  # noqa: PLC0415 - as below

        if reason := why_not(config, settings):
            raise click.BadParameter(reason, param_hint="--write")
    # numpy and the broker's client are slow to import: a config that is wrong is said at once.
    from processor.inspection.audit.read import ReadExtent  # noqa: PLC0415 - see above
    from processor.inspection.simulate.recommend import recommend  # noqa: PLC0415 - as above

    extent = ReadExtent(None if since is None else read_time(since), records, newest=True)
    found: list[tuple[Simulation, Recommendation]] = []
    for each in chosen:
        simulation = _simulate(settings, each, windows_ms, extent)
        found.append((simulation, recommend(simulation, settings.worker.commit_interval_ms)))
        (_tell if as_json else _show)(settings, *found[-1])
    if html is not None:
        from processor.inspection.simulate.page import render  # noqa: PLC0415 - as above

        replace_text(html, render(config.name, settings.worker.commit_interval_ms, found))
        say(f"the page: {html}", "green")
    if write is not None:
        _write_config(config, settings, write, found)
    ctx.exit(EXIT_DONE)


def _require_room(config: Path, html: Path | None, write: Path | None, *, force: bool) -> None:
    """Refuse, before anything is read, files that cannot be written or that would replace another one."""
    given = [("--html", html), ("--write", write)]
    taken = {config.resolve(): "the config"}
    for option, path in given:
        if path is None:
            continue
        if path.resolve() in taken:
            raise click.BadParameter(f"{path} is {taken[path.resolve()]} already", param_hint=option)
        taken[path.resolve()] = f"what {option} writes"
        if not path.parent.is_dir():
            raise click.BadParameter(f"there is no folder {path.parent}", param_hint=option)
    if write is not None and write.exists() and not force:
        raise click.BadParameter(f"{write} is there already; --force replaces it", param_hint="--write")


def _simulate(settings: Settings, pipeline: Pipeline, windows_ms: list[int], extent: ReadExtent) -> Simulation:
    from processor.inspection.simulate.ways import simulate as run  # noqa: PLC0415 - as above

    with ExitStack() as drawn:

        def progress(offsets: int) -> Callable[[int], None]:
            return drawn.enter_context(bar(f"reading {pipeline.source}", offsets))

        return asyncio.run(run(settings, pipeline, windows_ms, extent, progress))


def _tell(settings: Settings, simulation: Simulation, chosen: Recommendation) -> None:
    from processor.inspection.simulate.show import fields  # noqa: PLC0415 - as above

    result(
        pipeline=simulation.pipeline,
        source=simulation.source,
        partitions=simulation.partitions,
        ways=[fields(each, settings.worker.commit_interval_ms) for each in simulation.forecasts],
        candidates=simulation.candidates,
        changing=simulation.changing,
        notes=simulation.notes,
        recommended={"dedup": chosen.dedup, "reasons": chosen.reasons, "catches": round(chosen.catches)},
        cpu_s=round(simulation.cpu_s, 3),
    )


def _show(settings: Settings, simulation: Simulation, chosen: Recommendation) -> None:
    from processor.inspection.proposal.toml_text import toml_text  # noqa: PLC0415 - as above
    from processor.inspection.simulate.show import candidate_table  # noqa: PLC0415 - as above

    click.echo(shown(f"pipeline {simulation.pipeline}, source {simulation.source}").plain)
    for forecast in simulation.forecasts:
        _show_way(forecast, settings.worker.commit_interval_ms)
    if simulation.candidates:
        found = candidate_table(simulation.candidates)
        click.echo(f"\n{found.name}")
        table_on_stdout(found.titles, found.rows, right=(1, 2, 3, 5))
        if simulation.changing:
            click.echo(shown(f"copies differ in {', '.join(simulation.changing)}").plain)
    click.echo("\nrecommended:")
    for key, value in chosen.dedup.items():
        click.echo(shown(f"  {key} = {toml_text(value)}").plain)
    for reason in chosen.reasons:
        click.echo(shown(f"because {reason}").plain)
    for note in simulation.notes:
        say(f"note: {note}", "yellow")
    records = sum(each.judged.records for each in simulation.forecasts[:1])
    say(f"{simulation.cpu_s:.1f} CPU seconds, {records / max(simulation.cpu_s, 1e-9):,.0f} records each", "dim")


def _show_way(forecast: Forecast, commit_interval_ms: int) -> None:
    from processor.inspection.simulate.show import plot, sentences, tables  # noqa: PLC0415 - as above

    click.echo()
    for sentence in sentences(forecast):
        click.echo(shown(sentence).plain)
    whole = forecast.way.name != "compared"
    for each in tables(forecast, commit_interval_ms, costs=whole):
        click.echo(f"\n{each.heading}")
        table_on_stdout(each.titles, each.rows, right=range(1, len(each.titles)))
    if forecast.curve and whole:
        click.echo("\nshare of the copies that is caught, by window")
        for line in plot(forecast.curve):
            click.echo(line)


def _write_config(
    config: Path, settings: Settings, write: Path, found: list[tuple[Simulation, Recommendation]]
) -> None:
    from processor.inspection.simulate.written import recommended_text  # noqa: PLC0415 - as above

    chosen = {simulation.pipeline: recommendation for simulation, recommendation in found}
    replace_text(write, recommended_text(config, settings, chosen))
    say(f"the config: {write}", "green")
    try:
        load(write)  # it must be right
    except ConfigError:
        if "a secret, which is not copied" not in write.read_text(encoding="utf-8"):
            raise
        say("note: it has no secrets: give them in the environment, as it says", "yellow")
