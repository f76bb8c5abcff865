"""Positions in a topic, as a stream's checkpoint keeps them.

    {"topic": "clicks.clean", "id": "3fXq…", "next": {"0": 1200, "1": 1187}, "began": {"0": 0, "1": 0},
     "first": {"0": 0, "1": 0}}

``next`` is one beyond the last offset read, by partition; ``id`` is Kafka's id of the topic, empty where
brokers have none. A partition that the place before lacks was added: ``first`` has its first record as it was
planned.

By verdicts there is one place more, of their topic, and all that is read follows from it:

    {"topic": "clicks.raw", "id": "aB3x…", "next": {"0": 1200}, "began": {"0": 40}, "first": {"0": 40},
     "verdicts": {"topic": "clicks.verdicts", "id": "3fXq…", "next": {"0": 96}, "began": {"0": 0}, …}}

Then ``next`` of the source is where the last range ends, -1 where there is no verdict; a `seqmark reset` may
have it go back. ``began`` and ``first`` are the first records that the source retained.

Spark does not write down where a stream's first batch begins, and asks again when that batch runs again. So the
answer says nothing but ``"initial": true``, and the batch's end has where it began: what was first when it was
planned, and not when it runs. Of later batches ``began`` means nothing. It is ``first``, but with ``starting``
``latest``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Mapping


class SourcePlace(NamedTuple):
    """Where a stream is in its topic."""

    topic: str
    id: str
    next: dict[int, int]
    began: dict[int, int]
    first: dict[int, int]
    initial: bool = False
    verdicts: SourcePlace | None = None
    """In the topic of verdicts, where the topic is read by them."""

    def as_json(self) -> dict[str, Any]:
        """Return what stands in the checkpoint."""
        if self.initial:
            return {"topic": self.topic, "initial": True}
        places = {"next": self.next, "began": self.began, "first": self.first}
        by = {} if self.verdicts is None else {"verdicts": self.verdicts.as_json()}
        written = {name: _written(each) for name, each in places.items()}
        return {"topic": self.topic, "id": self.id, **written, **by}

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> SourcePlace:
        """Read what `as_json` gave."""
        if written.get("initial"):
            return cls(written["topic"], "", {}, {}, {}, initial=True)
        after, began, first = (_read(written[name]) for name in ("next", "began", "first"))
        verdicts = cls.read(written["verdicts"]) if "verdicts" in written else None
        return cls(written["topic"], written["id"], after, began, first, verdicts=verdicts)

    def require_same(self, later: SourcePlace) -> None:
        """Refuse to read on where the topic is another one by now.

        Raises:
            StopError: It is; says what to do.
        """
        if self.topic != later.topic:
            raise StopError(
                f"the checkpoint is of topic {self.topic}, and {later.topic} is to be read: begin with a new "
                f"checkpoint and a new output"
            )
        if self.id and later.id and self.id != later.id:
            raise StopError(
                f"topic {self.topic} was deleted and made anew: the checkpoint has read the one with the id "
                f"{self.id}, now it is {later.id}. Going on at the old offsets would leave out its beginning: "
                f"begin with a new checkpoint and a new output"
            )
        self._require_same_verdicts(later)

    def _require_same_verdicts(self, later: SourcePlace) -> None:
        if self.initial or (self.verdicts is None and later.verdicts is None):
            return
        if self.verdicts is None or later.verdicts is None:
            was, now = ("by" if each.verdicts else "without" for each in (self, later))
            raise StopError(
                f"the checkpoint has read {self.topic} {was} verdicts, and it is to be read {now} them: begin "
                f"with a new checkpoint and a new output"
            )
        self.verdicts.require_same(later.verdicts)

    def in_verdicts(self) -> SourcePlace:
        """Return the place in the topic of verdicts; of a place that is initial an initial one."""
        return self if self.verdicts is None else self.verdicts


def _written(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(number): offsets[number] for number in sorted(offsets)}


def _read(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(number): int(offset) for number, offset in offsets.items()}
