"""Finds aggregates that share what is read: those that sum up the same events of one topic as they are read."""

from __future__ import annotations

import secrets
import shutil
from collections import defaultdict
from typing import TYPE_CHECKING

from pyspark.core.files import SparkFiles

from spark_sink.session import runs_here
from spark_sink.source.rules import written
from spark_sink.source.shared.plan import SharedRead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import ExitStack

    from pyspark.sql import SparkSession

    from schemas.config import Sink
    from spark_sink.source.partials import PartialPlan


def shared_reads(
    spark: SparkSession,
    reads: Sequence[tuple[Sink, PartialPlan | None]],
    open_things: ExitStack,
    say: Callable[[str], None],
    *,
    accept_loss: bool,
) -> dict[str, SharedRead]:
    """Return with whom each aggregate shares what it reads, by name; one that shares with nobody is not in it.

    Args:
        spark: The session.
        reads: All aggregates of the job, each with what it sums up as it is read; None: Spark reads its events.
        open_things: Removes at its end what they have left each other on this machine.
        say: Told who shares.
        accept_loss: Whether they go on where records are gone: what is left then depends on when it is read.
    """
    families: defaultdict[tuple[str, str], list[tuple[Sink, PartialPlan]]] = defaultdict(list)
    for sink, plan in reads:
        if plan is not None and sink.verdicts is None and not accept_loss:
            families[sink.topic, written(plan.rules)].append((sink, plan))
    run, found = secrets.token_hex(16), dict[str, SharedRead]()
    # Executors of their own have folders of their own, that go with them.
    folder = str(SparkFiles.getRootDirectory()) if runs_here(spark) else ""
    for (topic, _), members in families.items():
        if len(members) > 1:
            plans = [plan for _, plan in members]
            for number, (sink, _) in enumerate(members):
                found[sink.name] = SharedRead(run, folder, plans, number)
            names = ", ".join(sink.name for sink, _ in members)
            say(f"{names}: {topic} is read and parsed once for all of them")
    if found and folder:
        open_things.callback(shutil.rmtree, SharedRead.run_folder(folder, run), ignore_errors=True)
    return found
