"""Finds numbers that a producer counts up: per partition, per key, or per value of a header.

A number that is not above the highest of its group so far is explained by a resend if it stood in a record
with the same value before, or, for a few, if it lies below all of the group's sample. Any other would be a new
record that a watermark drops: such numbers are not proposed, or with a reorder window that holds them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from processor.inspection.proposal.member_names import names_sequence
from processor.inspection.proposal.near import are_times
from processor.inspection.proposal.record_parts import KEY, Kind, Leaf, ObservedRecord, RecordPart

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

LEAST_STEPS = 10
"""Numbers that follow another in their group: fewer rise by chance."""
_DECIMAL = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_MOST = 2**63 - 1
_MOST_DIGITS = 20
"""With the sign."""
_ROUNDS = (256, 1_000, 4_096, 10_000, 16_384, 32_768, 65_536, 1_000_000, 2**24, 2**31, 2**32)
"""Where counters of devices begin again."""
_FULL = 0.97
"""Of such a range: a counter whose highest number lies above this share of it has gone through."""
_MOST_LATE = 0.1
_MOST_OLDER = 0.2
_MOST_WINDOW = 65_536
_MOST_GROUPS = 0.5
"""Groups per record: above it most have one number, which says nothing."""


class NumberFormat(NamedTuple):
    """How a number stands at a place; ``name`` as the config has it, None: a JSON integer."""

    name: str | None


class Rise(NamedTuple):
    """How numbers rise within groups.

    Attributes:
        format: How they are written.
        scope: As the config has it.
        steps: Numbers that follow another in their group.
        ones: Those that are one above the highest before.
        copies: Those that came before with the same value.
        older: Those below all of their group before.
        late: Those that came after a higher one, and were not seen before.
        reach: How far below the highest the furthest of those was.
        named: Whether the place is called as a sequence is.
        wraps: Behind how many numbers they begin again; 0: they do not.
    """

    format: NumberFormat
    scope: str
    steps: int
    ones: int
    copies: int
    older: int
    late: int
    reach: int
    named: bool
    wraps: int = 0

    @property
    def risen(self) -> int:
        """Numbers above all before them."""
        return self.steps - self.copies - self.older - self.late

    @property
    def contiguous(self) -> bool:
        """Whether nearly every number is one above the highest before."""
        return self.ones >= 0.9 * self.risen

    @property
    def reorder_window(self) -> int:
        """What holds the late ones four times over, a power of two; 0: none is late."""
        return min(1 << (4 * self.reach - 1).bit_length(), _MOST_WINDOW) if self.reach else 0


def rises(
    records: Sequence[ObservedRecord], place: RecordPart, scopes: Sequence[RecordPart | None]
) -> list[Rise]:
    """Return how the numbers at a place rise, in each scope in which they do; those without late ones first.

    Args:
        records: The sample; those of a partition in the order of their offsets.
        place: Where the numbers stand.
        scopes: Headers, members and the key, as groups within a partition; None: the partition itself.
    """
    format_ = _format(records, place)
    if format_ is None:
        return []
    numbers = {index: _number(record.leaves[place], format_) for index, record in enumerate(records)
               if place in record.leaves}  # fmt: skip
    if are_times((number, records[index].timestamp_ms) for index, number in numbers.items()):
        return []
    named = names_sequence(place.name)
    found: list[Rise] = []
    for wraps in dict.fromkeys((0, wraps_behind(numbers.values()))):
        for scope in scopes if not found else ():
            unwrapped = _unwrapped(records, numbers, scope, wraps) if wraps else numbers
            rise = None if scope == place else _rise(records, unwrapped, scope, format_, named=named)
            found += [] if rise is None else [rise._replace(wraps=wraps)]
    return sorted(found, key=lambda each: each.late > 0)


def wraps_behind(numbers: Collection[int]) -> int:
    """Return behind how many numbers a counter may begin again, which has these; 0: it has no such range."""
    highest = max(numbers, default=0)
    fits = (each for each in _ROUNDS if _FULL * each <= highest < each and min(numbers) >= 0)
    return next(fits, 0)


def _unwrapped(
    records: Sequence[ObservedRecord], numbers: dict[int, int], scope: RecordPart | None, wraps: int
) -> dict[int, int]:
    """Return the numbers as if they never began again: each is the nearest to the one before in its group."""
    last: dict[object, int] = {}
    found = {}
    for index, number in numbers.items():
        record = records[index]
        group = record.partition, None if scope is None else record.leaves.get(scope)
        before = last.get(group, number)
        found[index] = last[group] = before + (number - before + wraps // 2) % wraps - wraps // 2
    return found


def _rise(
    records: Sequence[ObservedRecord],
    numbers: dict[int, int],
    scope: RecordPart | None,
    format_: NumberFormat,
    *,
    named: bool,
) -> Rise | None:
    """Return how numbers rise in one scope; None: they do not."""
    counted = _count(records, numbers, scope)
    if counted is None:
        return None
    found = Rise(format_, _scope_name(scope), *counted[1:], named)
    if found.risen < max(LEAST_STEPS, found.steps / 2) or counted.groups > _MOST_GROUPS * len(numbers):
        return None
    # A tail that was sent again is short; a producer that counts anew goes on.
    if found.older > _MOST_OLDER * found.steps:
        return None
    # Late ones may be another producer's: only a number that is counted one by one tells.
    few = found.late <= _MOST_LATE * found.steps and 4 * found.reach <= _MOST_WINDOW
    return found if not found.late or (named and few) else None


class _Counted(NamedTuple):
    """The groups of a scope, and what `Rise` says of their numbers."""

    groups: int
    steps: int
    ones: int
    copies: int
    older: int
    late: int
    reach: int


def _count(
    records: Sequence[ObservedRecord], numbers: dict[int, int], scope: RecordPart | None
) -> _Counted | None:
    """Count how numbers follow each other; None: records have no scope, or one number and different values."""
    first: dict[object, int] = {}
    highest: dict[object, int] = {}
    seen: dict[tuple[object, int], ObservedRecord] = {}
    steps = ones = copies = older = late = reach = 0
    for index, number in numbers.items():
        record = records[index]
        if scope is not None and scope not in record.leaves:
            return None
        group = record.partition, None if scope is None else record.leaves[scope]
        original = seen.setdefault((group, number), record)
        if original.lasting != record.lasting:
            return None
        before = highest.setdefault(group, number)
        if first.setdefault(group, number) == number and original is record:
            continue  # the group's first
        steps += 1
        if number > before:
            ones += number == before + 1
            highest[group] = number
        elif original is not record:
            copies += 1
        elif number < first[group]:
            older += 1
        else:
            late += 1
            reach = max(reach, before - number)
    return _Counted(len(first), steps, ones, copies, older, late, reach)


def _scope_name(scope: RecordPart | None) -> str:
    if scope is None:
        return "partition"
    return "key" if scope == KEY else f"{scope.source}:{scope.name}"


def _format(records: Sequence[ObservedRecord], place: RecordPart) -> NumberFormat | None:
    """Return how all of a place's contents are numbers; None: they are not."""
    leaves = [record.leaves[place] for record in records if place in record.leaves]
    if place == KEY or not leaves:
        return None
    if place.source == "value" and all(leaf.kind is Kind.INTEGER for leaf in leaves):
        return NumberFormat(None) if all(_fits(leaf.text) for leaf in leaves) else None
    if any(leaf.kind is not Kind.STRING for leaf in leaves):
        return None
    texts = [leaf.text if isinstance(leaf.text, str) else leaf.text.decode("latin-1") for leaf in leaves]
    if all(_DECIMAL.fullmatch(text) and _fits(text) for text in texts):
        return NumberFormat("text")
    widths = {len(leaf.text) for leaf in leaves}
    if place.source == "header" and widths in ({8}, {4}) and not all(map(str.isprintable, texts)):
        return NumberFormat("int64" if widths == {8} else "int32")
    return None


def _fits(text: str | bytes) -> bool:
    """Whether a whole number has 64 bits at most; int() refuses one of thousands of digits."""
    return len(text) <= _MOST_DIGITS and abs(int(text)) <= _MOST


def _number(leaf: Leaf, format_: NumberFormat) -> int:
    if format_.name in {"int64", "int32"} and isinstance(leaf.text, bytes):
        return int.from_bytes(leaf.text, "big", signed=True)
    return int(leaf.text)
