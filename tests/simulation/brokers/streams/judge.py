"""Says what each batch of a stream has to have, by what stood in its topics, and when it may be refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.brokers.streams.tapes import SOURCE, VERDICTS, Row, as_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from schemas.verdicts.record import VerdictRecord
    from tests.simulation.brokers.streams.engine import Checkpoint, Planned, Rows, Way
    from tests.simulation.brokers.streams.tapes import World

NOWHERE = -1
"""Where no verdict says how far the source was judged."""


class _Stretch(NamedTuple):
    """What a batch has of a partition of the topic that is planned.

    Attributes:
        number: The partition.
        start: Its first offset.
        stop: The one behind its last.
        fresh: Whether the stream begins with it.
        added: Whether the partition came later than the stream.
    """

    number: int
    start: int
    stop: int
    fresh: bool
    added: bool


class StreamJudge:
    """Judges one stream.

    Args:
        world: What it reads from.
        way: How; may be another one after each refusal.
    """

    def __init__(self, world: World, way: Way) -> None:
        self.world, self.way = world, way

    # ---------------------------------------------------------------- where batches end

    def planned(self, known: Checkpoint) -> None:
        """Compare where a batch ends with the topic as it was meanwhile."""
        plan, topic = known.plans[-1], self.way.topics[0]
        before, after = plan.before[topic], plan.after[topic]
        assert plan.place["id"] in {before.id, after.id}, "a batch ends in a topic that was not there"
        if before.id != after.id:
            return
        assert before.bounds.keys() & after.bounds.keys() <= plan.next.keys(), "a batch lacks a partition"
        for number, at in plan.next.items():
            low, high = before.bounds.get(number, (0, 0))[1], self.world.tape(topic, number).stable
            assert low <= at <= high, f"a batch ends at {at} of partition {number}, not within {low} and {high}"
        if len(known.plans) == 1:
            self._begins(plan, topic, plan.place, int(self.way.latest))
        if self.way.by_verdicts and plan.before[SOURCE].id == plan.after[SOURCE].id:
            if len(known.plans) == 1:
                self._begins(plan, SOURCE, plan.end, 0)
            self._require_judged(plan)

    @staticmethod
    def _begins(plan: Planned, topic: str, place: Mapping[str, Any], which: int) -> None:
        before, after = plan.before[topic].bounds, plan.after[topic].bounds
        for number, at in ((int(each), at) for each, at in place["began"].items()):
            if number not in before or number not in after:
                continue
            low, high = before[number][which], after[number][which]
            assert low <= at <= high, (
                f"a stream begins at {at} of {topic}:{number}, not within {low} and {high}"
            )

    def _require_judged(self, plan: Planned) -> None:
        """The source is read up to where the last range ends."""
        before, after = plan.before[VERDICTS].bounds, plan.after[VERDICTS].bounds
        for number, stop in plan.next.items():
            some = self.world.incarnations[plan.place["id"]].said[number]
            # Of one that has expired a driver may know.
            first = {0, *(bounds[number][0] for bounds in (before, after) if number in bounds)}
            ends = {
                max([(at, v.end) for at, v in some if low <= at < stop], default=(0, NOWHERE))[1]
                for low in first
            }
            assert plan.end["next"][str(number)] in ends, f"the verdicts of {number} end elsewhere"

    def _stretches(self, known: Checkpoint) -> Iterator[_Stretch]:
        """Yield what the batch has that comes next."""
        number = len(known.outputs)
        plan = known.plans[number]
        before = known.plans[number - 1].next if number else {}
        for partition, stop in plan.next.items():
            added = bool(number) and partition not in before
            began = 0 if number else int(plan.place["began"][str(partition)])
            yield _Stretch(partition, before.get(partition, began), stop, not number, added)

    # ---------------------------------------------------------------- what batches have

    def read(self, known: Checkpoint, rows: Rows) -> None:
        """Compare what a batch has that is about to count with the truth."""
        number = len(known.outputs)
        plan = known.plans[number]
        if number:
            before = known.plans[number - 1]
            same = before.place["id"] == plan.place["id"] and before.end["id"] == plan.end["id"]
            assert same, "a stream goes on in a topic that was made again"
        assert rows.keys() <= plan.next.keys()
        for stretch in self._stretches(known):
            found = rows.get(stretch.number, [])
            wanted, gap = self._wanted(known, plan, stretch)
            assert not gap or self.way.accept_loss, f"a stream goes on although {gap}"
            if self.way.accept_loss:
                self._require_among(known, plan, stretch, found, wanted)
                continue
            assert found == wanted, (
                f"batch {number} has {len(found)} records of partition {stretch.number} from {stretch.start} "
                f"to {stretch.stop}, {len(wanted)} wanted"
            )

    def _wanted(
        self, known: Checkpoint, plan: Planned, stretch: _Stretch, first: int = 0
    ) -> tuple[list[Row], str]:
        """Return the records that a batch has, and why it must not have them, if it must not.

        Args:
            known: The stream.
            plan: The batch.
            stretch: Of a partition.
            first: The first verdict that counts.
        """
        topic = self.world.incarnations[plan.end["id"]]
        every = topic.rows[stretch.number]
        if not self.way.by_verdicts:
            return [row for row in every if stretch.start <= row.offset < stretch.stop], ""
        wanted, gap = list[Row](), ""
        began = int(plan.end["began"][str(stretch.number)]) if stretch.fresh else 0
        for at, verdict, after in self._ranges(plan, stretch):
            if at < first:
                continue
            if verdict is None:
                gap = gap or "verdicts are of another topic"
                continue
            if after is not None and verdict.base > after and verdict.begins:
                gap = gap or f"offsets {after} to {verdict.base} have no verdict"
            if self._is_changed(known, verdict):
                gap = gap or f"offsets {verdict.base} to {verdict.end} are not those that were judged"
            skipped = set(verdict.skipped.tolist())
            wanted += [
                row
                for row in every
                if max(verdict.base, began) <= row.offset < verdict.end and row.offset not in skipped
            ]
        return wanted, gap

    def _is_changed(self, known: Checkpoint, verdict: VerdictRecord) -> bool:
        """Say whether a batch of a range is another one since before it was read."""
        ends = known.changed.get(verdict.partition, ())
        there = self._first(SOURCE, verdict.partition) <= verdict.base
        return there and any(verdict.base < end <= verdict.end for end in ends)

    def _ranges(
        self, plan: Planned, stretch: _Stretch
    ) -> Iterator[tuple[int, VerdictRecord | None, int | None]]:
        """Yield a stretch's verdicts: offset, record (None: of another topic), and where the last one ended."""
        source = self.world.incarnations[plan.end["id"]].id
        after: int | None = None
        for at, verdict in self.world.incarnations[plan.place["id"]].said[stretch.number]:
            mine = as_text(verdict.topic_id) == source
            if stretch.start <= at < stretch.stop:
                yield at, verdict if mine else None, after
            elif stretch.fresh:
                continue  # how far they had come by then is not known
            if at < stretch.stop:
                after = verdict.end if mine else None

    def _require_among(
        self, known: Checkpoint, plan: Planned, stretch: _Stretch, found: list[Row], wanted: list[Row]
    ) -> None:
        """With loss accepted a batch has all that is still there, and nothing else."""
        left = iter(wanted)
        assert all(any(row == each for each in left) for row in found), "records are made up, or out of order"
        if (
            self.world.id_of(SOURCE) != plan.end["id"]
            or self.world.id_of(self.way.topics[0]) != plan.place["id"]
        ):
            return
        first = self._first(SOURCE, stretch.number)
        if self.way.by_verdicts:
            wanted, _ = self._wanted(known, plan, stretch, self._first(VERDICTS, stretch.number))
        there = {row for row in wanted if row.offset >= first}
        assert there <= set(found), f"{len(there - set(found))} records that are there are left out"

    def _first(self, topic: str, number: int) -> int:
        return self.world.tape(topic, number).start

    # ---------------------------------------------------------------- when a batch may be refused

    def ids(self) -> set[str]:
        """Return the ids of the stream's topics as they are now."""
        return {self.world.id_of(topic) for topic in self.way.topics}

    def reason(self, known: Checkpoint, began: set[str]) -> str:
        """Return why the stream may be refused as the topics are now; empty: there is no reason.

        Args:
            known: The stream.
            began: Ids of its topics when its driver began.
        """
        number = len(known.outputs)
        ids = self.ids()
        if ids != began or any({plan.end["id"], plan.place["id"]} != ids for plan in known.plans):
            return "anew"
        shown = self.world.seen(self.way.topics[0]).bounds.keys()
        sources = self.world.seen(SOURCE).bounds.keys()
        if any(plan.next.keys() - shown for plan in known.plans) or (self.way.by_verdicts and shown - sources):
            return "hidden"
        if number == len(known.plans):
            return ""
        plan = known.plans[number]
        if number and known.plans[number - 1].next.keys() - plan.next.keys():
            return "hidden"
        for stretch in self._stretches(known):
            if why := self._lost(known, plan, stretch):
                return why
        return ""

    def _lost(self, known: Checkpoint, plan: Planned, stretch: _Stretch) -> str:
        """Return why a stretch may be refused, where no loss is accepted."""
        number, first = stretch.number, self._first(self.way.topics[0], stretch.number)
        lost = "loss" if first > stretch.start and not self.way.accept_loss else ""
        if not self.way.by_verdicts:
            return lost
        if self.way.accept_loss:
            return ""
        if number in self.world.changed:
            return "changed"
        _, gap = self._wanted(known, plan, stretch)
        if lost or gap:
            return lost or gap
        source = self._first(SOURCE, number)
        began = int(plan.end["began"].get(str(number), 0)) if stretch.fresh else 0
        for _, verdict, _ in self._ranges(plan, stretch):
            assert verdict is not None
            if max(verdict.base, began) < source and verdict.end > began:
                return "source"
        return self._forgotten(known, stretch, source, [each for _, each, _ in self._ranges(plan, stretch)])

    @staticmethod
    def _forgotten(known: Checkpoint, stretch: _Stretch, source: int, said: list[VerdictRecord | None]) -> str:
        """Say whether it is forgotten how far verdicts had come, and they begin somewhere."""
        before = known.plans[len(known.outputs) - 1].end["next"].get(str(stretch.number), NOWHERE)
        first = said[0] if said else None
        is_lost = not stretch.fresh and before == NOWHERE and first is not None
        return "forgotten" if is_lost and first is not None and first.begins and first.base > source else ""
