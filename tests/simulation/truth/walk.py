"""Goes through what states have taken in, one after the other, with the naive model that each begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.support.judges.id_rules import BucketIdModel, IdModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.simulation.scenario import Scenario
    from tests.simulation.truth.oracle import Stretch
    from tests.support.judges.rules import Model
    from tests.support.kafka.topics import Record

BIG_BYTES = 8_000
"""Of noise in a record, or of its key, which a sink that takes little does not take."""


class Walked(NamedTuple):
    """A stretch, the model as it stands before it, and the records that it is to judge, in order."""

    stretch: Stretch
    model: Model | IdModel
    records: Sequence[Record]


def walked(scenario: Scenario, records: Sequence[Record], stretches: Sequence[Stretch]) -> Iterator[Walked]:
    """Yield stretch after stretch; whoever takes one has its model judge its records before the next."""
    model = scenario.model()
    for at, stretch in enumerate(stretches):
        before = stretches[:at]
        goes_on = stretch.known_from, before[-1].stop if before else stretch.known_from
        if (before[-1].known_from if before else stretch.known_from, stretch.start) != goes_on:
            is_kept = bool(before) and stretch.known_from < before[-1].stop < stretch.start
            first = before[-1].stop if is_kept else stretch.known_from
            left_out = {
                each.offset
                for each in records
                if is_big(each) and (stretch.small or _was_small(before, each.offset))
            }
            behind = (each for each in records if first <= each.offset < stretch.start)
            some = [each for each in behind if each.offset not in left_out]
            model = _replayed(scenario, model if is_kept else scenario.model(), some)
            if isinstance(model, BucketIdModel):
                # Who judges by exact rules remembers nothing that has expired, though its bucket has not.
                living = set(model.living())
                model.ids = {name: each for name, each in model.ids.items() if each in living}
        some = [each for each in records if stretch.start <= each.offset < stretch.stop]
        yield Walked(stretch, model, some)


def _replayed(scenario: Scenario, model: Model | IdModel, records: Iterable[Record]) -> Model | IdModel:
    """Have a model judge records as a reset does: by exact rules, also what filters hold."""
    by = model
    if isinstance(model, BucketIdModel):
        by = IdModel(model._rules, scenario.now_ms)
        by.ids, by.clock_ms = dict(model.ids), model.clock_ms
    for each in records:
        by.judge(each)
    if isinstance(model, BucketIdModel) and isinstance(by, IdModel):
        model.ids, model.clock_ms = by.ids, by.clock_ms
    return model


def _was_small(stretches: Sequence[Stretch], offset: int) -> bool:
    """Say whether the sink took little at any time when a record was taken in: quarantine says so."""
    return any(each.small and each.start <= offset < each.stop for each in stretches)


def is_big(record: Record) -> bool:
    """Say whether a record is too large for a sink that takes little."""
    return any(name == "noise" for name, _ in record.headers) or len(record.key or b"") >= BIG_BYTES
