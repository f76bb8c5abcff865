"""``seqmark demo`` runs the whole way by Seqmark's own commands, on records whose duplicates are known.

It exits 0 only if everything that came out, Spark's aggregate included, agrees with the truth.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from processor.broker.embedded import find_broker
from processor.commands.console import json_option, people, result, say, table_of
from processor.commands.files import writing
from processor.errors import EXIT_DONE, EXIT_FAILED
from processor.ops.extras import require

if TYPE_CHECKING:
    from processor.demo.truth import DemoResult


@click.command()
@click.option(
    "--mode",
    type=click.Choice(["watermark", "insert-id", "fingerprint", "verdicts", "batch"]),
    default="watermark",
    help="How duplicates are identified: by a sequence in a header, by the clicks' own id within an hour, or "
    "by that id and their content, where other content under one id is another click; verdicts: by a sequence, "
    "without a clean topic; batch: by id and content, of files at rest and of the topic behind them.",
)
@click.option(
    "--records",
    type=click.IntRange(min=1_000),
    help="How many clicks, duplicates included; not set: 500,000, of mode batch 150,000.",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("var/demo"),
    help="Folder for config, truth, log, aggregate and report.",
)
@click.option("--seed", type=click.IntRange(min=0), default=7, help="Same seed, same clicks.")
@click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT",
    help="A broker to use; not set: an embedded one, for as long as the demo runs.",
)
@json_option
@click.pass_context
def demo(
    ctx: click.Context,
    *,
    mode: Literal["watermark", "insert-id", "fingerprint", "verdicts", "batch"],
    records: int | None,
    directory: Path,
    seed: int,
    bootstrap_servers: str | None,
    as_json: bool,
) -> None:
    """Show the whole way: raw topic, worker, clean topic, aggregate, certificate, report, against the truth.

    Each step is a command of Seqmark, which is printed as it is run. The worker is killed in the middle of a
    transaction, and another one goes on. In mode insert-id some of the receipts are shown too, in mode
    fingerprint also what would have been missed had collisions been dropped as duplicates. What needs an extra
    that is not installed, Spark's aggregate or the report, is left out, which is said.

    In mode verdicts the worker writes no clean topic but what of the source to skip; Spark reads the source by
    that, and the bytes that were saved are shown.

    In mode batch three days of files are made clean by Spark; one run is killed and started again, one date is
    made again from corrected files; then a worker goes on from there on a topic.
    """
    if mode == "batch":
        require("seqmark demo --mode batch", "spark")
    # The client of the broker and numba are slow to import, `-h` is not.
    from processor.demo.script import DemoFolder  # noqa: PLC0415 - see above
    from processor.demo.stream import StreamDemo  # noqa: PLC0415 - see above

    with writing(directory):
        folder = DemoFolder.new(directory)
    wanted = bootstrap_servers or os.environ.get("SEQMARK_KAFKA__BOOTSTRAP_SERVERS")
    say(f"using the broker at {wanted}" if wanted else "starting a broker")
    with find_broker(wanted, say=say) as servers:
        try:
            if mode == "batch":
                from processor.demo.batch import BatchDemo  # noqa: PLC0415 - needs what comes with Spark

                found = BatchDemo(folder, servers, say).run(records or 150_000, seed)
            else:
                found = StreamDemo(folder, servers, mode, say).run(records or 500_000, seed)
        finally:
            shutil.rmtree(folder / "state", ignore_errors=True)  # a copy of what is in the changelog
    if as_json:
        counts = {what: {"found": is_, "truth": must} for what, (is_, must) in found.counts.items()}
        result(mode=mode, ok=found.ok, counts=counts, differences=found.differences, **found.fields)
    _tell(found, as_json=as_json)
    ctx.exit(EXIT_DONE if found.ok else EXIT_FAILED)


def _tell(found: DemoResult, *, as_json: bool) -> None:
    """Show what came of it; the verdict is said, and where programs read the result all of it is."""
    out = people(stderr=as_json)
    for each in (table_of(("records", "found", "truth", ""), found.rows, (1, 2)), *found.shown):
        out.print()
        out.print(each, highlight=False, markup=False, soft_wrap=True)
    out.print()
    for difference in found.differences:
        say(f"WRONG: {difference}", "bold red")
    if found.ok:
        say("everything agrees with the truth", "bold green")
    else:
        say("not everything agrees with the truth", "bold red")
