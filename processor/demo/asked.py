"""Chooses two records of a run, one dropped and one passed, and checks what is said of them against the truth.

Pure: what `seqmark explain` answers goes in as the object that programs get.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from processor.generator import RecordKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from processor.demo.summary import DemoChecks
    from processor.generator import StreamPartition
    from processor.generator.truth import Truth

_DROPPED = {"duplicate", "late"}


class AskedRecord(NamedTuple):
    """A record of the source, and what must be said of it.

    Attributes:
        partition: Of the source.
        offset: There.
        clean_offset: Where it stands in the clean topic; None: it was dropped.
        owner_offset: Of one that was dropped, where the record stands that it was compared with.
    """

    partition: int
    offset: int
    clean_offset: int | None
    owner_offset: int | None

    def differences(self, told: dict[str, Any]) -> list[str]:
        """Return what is not as it must be of what was answered; empty where all is."""
        said = told["outcome"], _offset(told["clean"]), _offset(told["source"])
        wrong = [f"the topics contradict the rules: {problem}" for problem in told["problems"]]
        if self.clean_offset is not None:
            must = ("passed", self.clean_offset, self.offset)
            wrong += [f"says {said}, must say {must}"] if said != must else []
        else:
            owner = _offset(told["owner"])
            if said[0] not in _DROPPED or said[2] != self.offset or told["receipt"] is None:
                wrong.append(f"says {said}, must say that it was dropped, and where its receipt is")
            if owner != self.owner_offset:
                wrong.append(f"says that it was compared with offset {owner}, which was {self.owner_offset}")
        return [f"explain of offset {self.offset} of partition {self.partition}: {each}" for each in wrong]


def asked(
    stream: Sequence[StreamPartition], truths: Sequence[Truth], checked: Sequence[DemoChecks]
) -> list[AskedRecord]:
    """Return a record that was dropped and one that passed, from the middle of the first partition with one."""
    found: list[AskedRecord] = []
    for passed in (False, True):
        every = (_of(number, *each, passed=passed) for number, each in _numbered(stream, truths, checked))
        found += [one for one in every if one is not None][:1]
    return found


def _numbered(*columns: Sequence[Any]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    yield from enumerate(zip(*columns, strict=True))


def _of(
    number: int, stream: StreamPartition, truth: Truth, checks: DemoChecks, *, passed: bool
) -> AskedRecord | None:
    rows = np.flatnonzero((truth.passes == passed) & (truth.fault == 0) & (truth.kind != RecordKind.COLLISION))
    if not rows.size or checks.sink_offset.size != int(truth.passes.sum()):
        return None
    row = int(rows[rows.size // 2])
    offset = int(truth.offset[row])
    if passed:
        clean = int(checks.sink_offset[int(truth.passes[:row].sum())])
        return AskedRecord(number, offset, clean, None)
    return AskedRecord(number, offset, None, int(truth.offset[_owner(stream, truth.passes, row)]))


def _owner(stream: StreamPartition, passes: NDArray[np.bool_], row: int) -> int:
    """Return the row of the record that a dropped one was compared with.

    By ids it is the copy that had passed, by sequences the one that the watermark is of: the last that passed.
    """
    if stream.judged is not None:
        return int(stream.judged.owner[row])
    return int(np.flatnonzero(passes[:row])[-1])


def _offset(place: dict[str, Any] | None) -> int | None:
    return None if place is None else place.get("offset")
