"""Records that carry any watermark definition: scope, sequence and epoch, in key, headers or value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.errors import ConfigError, Problem
from processor.generator.content import FAULTS, Record, require_int32, with_parts
from processor.generator.numbering import draw_numbers
from processor.generator.pointers import Fields
from schemas.config import HeaderSource, ValueSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.generator.content import Rendered
    from schemas.config import WatermarkDedup
    from schemas.config.dedup import SequenceSource

_TOO_LARGE = b"9223372036854775808"
"""2^63: the least that is no signed 64-bit number."""

_SCOPE, _SEQUENCE, _EPOCH = "scope", "sequence", "epoch"


class _Break(NamedTuple):
    """A way in which a record cannot be judged: the code in quarantine, and which part is at fault."""

    code: str
    part: str


class ScopeForm:
    """Where the parts of a definition stand in a record.

    Args:
        dedup: The definition.
        key: Where it stands in the config, for messages.

    Raises:
        ConfigError: No record can carry it.

    Attributes:
        dedup: The definition.
        scope_header: Its name, where the scope is a header.
        parts: Sequence, and epoch where there is one, by name.
        breaks: How records of this form can be made impossible to judge.
    """

    def __init__(self, dedup: WatermarkDedup, key: str) -> None:
        self.dedup = dedup
        scope = dedup.scope
        self.scope_header = scope.removeprefix("header:") if scope.startswith("header:") else None
        self.parts: dict[str, SequenceSource] = {_SEQUENCE: dedup.sequence}
        if dedup.epoch is not None:
            self.parts[_EPOCH] = dedup.epoch
        self._require_own_headers(key)
        values = {name: part for name, part in self.parts.items() if isinstance(part, ValueSource)}
        self.slots = {name: slot for slot, name in enumerate(values)}
        self.fields = Fields([(f"{key}.{name}.pointer", part.pointer) for name, part in values.items()])
        self.breaks = tuple(self._breaks())

    def _require_own_headers(self, key: str) -> None:
        taken = {self.scope_header}
        for name, part in self.parts.items():
            if isinstance(part, HeaderSource):
                if part.name in taken:
                    message = f"the header {part.name} holds another part of the definition already"
                    raise ConfigError([Problem(f"{key}.{name}.name", message)])
                taken.add(part.name)

    def _breaks(self) -> list[_Break]:
        found = []
        if self.dedup.scope == "key":
            found.append(_Break("key_missing", _SCOPE))
        if self.scope_header is not None:
            found += [_Break("header_missing", _SCOPE), _Break("header_malformed", _SCOPE)]
        for name, part in self.parts.items():
            codes = ["header_missing", "header_malformed"]
            if isinstance(part, ValueSource):
                codes = ["value_missing", "value_not_json", "field_missing", "field_type"]
            if isinstance(part, ValueSource) or part.format == "text":
                codes.append("out_of_range")
            found += [_Break(code, name) for code in codes]
        return found


class ScopedMarks:
    """The originals of one partition under any watermark definition; see `Marks`.

    Args:
        rng: Drawn from by columns.
        form: Where the parts stand.
        scope: int32[originals], from `draw_scopes`: numbers within the partition.
        place: The partition's number, and how many there are: their scopes have names of their own.
        broken: Which originals cannot be judged.

    Raises:
        ConfigError: The sequences do not fit their format.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        form: ScopeForm,
        scope: NDArray[np.int32],
        place: tuple[int, int],
        broken: NDArray[np.int64],
    ) -> None:
        self._form = form
        self._place = place
        window = form.dedup.reorder_window
        self.numbers = draw_numbers(rng, scope, epochs=form.dedup.epoch is not None, window=window)
        source = form.dedup.sequence
        if isinstance(source, HeaderSource) and source.format == "int32":
            require_int32(self.numbers.sequence)
        # Index into the form's breaks, from 1.
        self._broken = np.zeros(scope.size, np.uint8)
        self._broken[broken] = 1 + np.arange(broken.size) % len(form.breaks)
        codes = [0, *(FAULTS.index(each.code) for each in form.breaks)]
        self.faults: NDArray[np.uint8] = np.array(codes, np.uint8)[self._broken]
        self.passes: NDArray[np.bool_] = self.numbers.passes(self.faults == 0, window)

    def records(self, rows: NDArray[np.int32], rendered: Sequence[Rendered]) -> list[Record]:
        """Return the records of these originals, each with scope, sequence and epoch."""
        form = self._form
        headers, slots = self._shown(rows)
        records = with_parts(rendered, headers, form.fields, slots)
        for at in np.flatnonzero(self._broken[rows]).tolist():
            which = form.breaks[self._broken[rows[at]] - 1]
            shown = [column[at] for column in slots]
            records[at] = self._break(records[at], which, rendered[at][1], shown, int(rows[at]))
        return records

    def _shown(self, rows: NDArray[np.int32]) -> tuple[dict[str, list[bytes]], list[list[bytes]]]:
        """Return a column for each header by its name, and one for each of the value's fields."""
        form = self._form
        headers: dict[str, list[bytes]] = {}
        slots: list[list[bytes]] = []
        if form.scope_header is not None:
            partition, partitions = self._place
            scopes = self.numbers.scope[rows].astype(np.int64) * partitions + partition
            headers[form.scope_header] = [b"p-%06d" % scope for scope in scopes.tolist()]
        for name, part in form.parts.items():
            numbers = (self.numbers.sequence if name == _SEQUENCE else self.numbers.epoch)[rows]
            if isinstance(part, HeaderSource):
                headers[part.name] = _in_header(part, numbers)
            else:
                slots.append([_in_value(part, b"%d" % number) for number in numbers.tolist()])
        return headers, slots

    def _break(self, record: Record, which: _Break, click: bytes, shown: list[bytes], original: int) -> Record:
        """Return the record with one part at fault; ``click`` is its value without the fields."""
        form = self._form
        part = form.parts.get(which.part)
        if which.code == "key_missing":
            return record._replace(key=None)
        if isinstance(part, ValueSource):
            return record._replace(value=self._bad_value(record, which, part, click, shown))
        name = form.scope_header if part is None else part.name
        headers = [header for header in record.headers if header[0] != name]
        if which.code != "header_missing":
            # Any bytes are a scope, no value is none; two bytes are no integer, and these no text.
            bad = _TOO_LARGE if which.code == "out_of_range" else b"?%d" % (original % 10)
            headers.append((name or "", None if part is None else bad))
        return record._replace(headers=tuple(headers))

    def _bad_value(
        self, record: Record, which: _Break, part: ValueSource, click: bytes, shown: list[bytes]
    ) -> bytes | None:
        match which.code:
            case "value_missing":
                return None
            case "value_not_json":
                return (record.value or b"")[:-1]
            case "field_missing":
                return click
            case "field_type":
                wrong = b"17.5"  # no integer, and no string either
            case _:
                wrong = _in_value(part, _TOO_LARGE)
        shown[self._form.slots[which.part]] = wrong
        return self._form.fields.put(click, shown)


def _in_header(source: HeaderSource, numbers: NDArray[np.int64]) -> list[bytes]:
    if source.format == "text":
        return [b"%d" % number for number in numbers.tolist()]
    width = 8 if source.format == "int64" else 4
    data = numbers.astype(f">i{width}").tobytes()
    return [data[at : at + width] for at in range(0, len(data), width)]


def _in_value(source: ValueSource, digits: bytes) -> bytes:
    return b'"' + digits + b'"' if source.format == "text" else digits
