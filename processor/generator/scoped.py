"""Records that carry any watermark definition: scope, sequence and epoch, in key, headers or value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from processor.errors import ConfigError, Problem
from processor.generator.layout import RecordKind
from processor.generator.marks import Break, MarkColumns, Marks
from processor.generator.numbering import RecountRules
from processor.generator.pointers import Fields
from schemas.config import HeaderId, HeaderNumber, KeyId, ValueId, ValueNumber

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from processor.generator.layout import Layout
    from processor.generator.numbering import Numbers
    from schemas.config import WatermarkDedup
    from schemas.config.dedup import NumberSource

_INT32_END = 2**31
_BELOW = np.full(1, -1, np.int64)
_OF_VALUES = ("value_missing", "value_not_json", "field_missing")
_TOO_LARGE = b"9223372036854775808"
"""2^63: the least that is no signed 64-bit number."""


class ScopeForm:
    """Where the parts of a definition stand in a record.

    Args:
        dedup: The definition.
        key: Where it stands in the config, for messages.

    Raises:
        ConfigError: No record can carry it.

    Attributes:
        plain: Whether it is no more than a sequence per partition in a header.
        scope_headers: Those that are parts of the scope.
        scope_fields: How many fields of the value are, the first ones.
        keyed: Whether the key is.
        parts: Sequence, and epoch where there is one, by name.
        fields: Where those stand that are in the value.
        recount: The rules where copies may pass; None: none does.
        breaks: How records of this form can be made impossible to judge.
    """

    def __init__(self, dedup: WatermarkDedup, key: str) -> None:
        self.dedup = dedup
        self.parts: dict[str, NumberSource] = {"sequence": dedup.sequence}
        if dedup.epoch is not None:
            self.parts["epoch"] = dedup.epoch
        scope = dedup.scope_parts
        for name, each in [*(("scope", part) for part in scope), *self.parts.items()]:
            if not isinstance(each, HeaderId | KeyId | ValueId | HeaderNumber | ValueNumber):
                message = f"{each.from_} is in no generated record, a click in JSON; a header or a field can be"
                raise ConfigError([Problem(f"{key}.{name}", message)])
        self.keyed = any(isinstance(part, KeyId) for part in scope)
        self.scope_headers = [part.name for part in scope if isinstance(part, HeaderId)]
        pointers = [(f"{key}.scope", part.pointer) for part in scope if isinstance(part, ValueId)]
        self.scope_fields = len(pointers)
        taken = {*self.scope_headers}
        for name, part in self.parts.items():
            if isinstance(part, ValueNumber):
                pointers.append((f"{key}.{name}.pointer", part.pointer))
            elif isinstance(part, HeaderNumber) and part.name in taken:
                message = f"the header {part.name} holds another part of the definition already"
                raise ConfigError([Problem(f"{key}.{name}.name", message)])
            elif isinstance(part, HeaderNumber):
                taken.add(part.name)
        self.fields = Fields(pointers)
        in_header = isinstance(dedup.sequence, HeaderNumber) and dedup.scope == "partition"
        self.plain = in_header and dedup.epoch is None and not dedup.reorder_window and not dedup.wraps
        recount = RecountRules(dedup.reorder_window, dedup.wraps, dedup.changes)
        self.recount = recount if dedup.wraps or dedup.changes else None
        self.breaks = tuple(self._breaks())

    def _breaks(self) -> Iterator[Break]:
        yield from self._of_scope()
        yield from self._of_numbers()

    def _of_scope(self) -> Iterator[Break]:
        if self.keyed:
            yield Break("key_missing")
        for header in self.scope_headers:
            # Any bytes are a scope, and no value is none.
            yield from (Break(code, header) for code in ("header_missing", "header_malformed"))
        for slot in range(self.scope_fields):
            yield from (Break(code, slot=slot) for code in _OF_VALUES)
            yield Break("field_type", slot=slot, wrong=b"[17]")

    def _of_numbers(self) -> Iterator[Break]:
        slot = self.scope_fields
        for name, part in self.parts.items():
            differs = name == "epoch" and self.dedup.changes
            wraps = name == "sequence" and self.dedup.wraps > 0
            if isinstance(part, HeaderNumber):
                yield Break("header_missing", part.name)
                if differs:
                    yield Break("header_malformed", part.name)
                    continue
                if wraps:
                    yield Break("out_of_range", part.name, wrong=_in_header(part, _BELOW)[0])
                # Two bytes are no integer, and these no text.
                yield Break("header_malformed", part.name, wrong=b"?#")
                if part.format == "text" and not self.plain:
                    yield Break("out_of_range", part.name, wrong=_TOO_LARGE)
            elif isinstance(part, ValueNumber):
                yield from (Break(code, slot=slot) for code in _OF_VALUES)
                # No integer, and no string either.
                yield Break("field_type", slot=slot, wrong=b"[17]" if differs else b"17.5")
                if wraps:
                    yield Break("out_of_range", slot=slot, wrong=_in_value(part, b"%d" % self.dedup.wraps))
                elif not differs:
                    yield Break("out_of_range", slot=slot, wrong=_in_value(part, _TOO_LARGE))
                slot += 1


class ScopedMarks(Marks):
    """The originals of one partition under any watermark definition.

    ``place`` is the partition's number, and how many there are: their scopes have names of their own.

    Raises:
        ConfigError: The sequences do not fit their format.
    """

    def __init__(
        self, form: ScopeForm, numbers: Numbers, place: tuple[int, int], broken: NDArray[np.int64]
    ) -> None:
        count = numbers.scope.size
        super().__init__(count, form.fields, form.breaks, broken)
        self._form = form
        if form.dedup.wraps:
            numbers = replace(numbers, sequence=numbers.sequence % form.dedup.wraps)
        self._numbers = numbers
        self._place = place
        source = form.dedup.sequence
        in_32_bits = isinstance(source, HeaderNumber) and source.format == "int32"
        if in_32_bits and numbers.sequence.max(initial=0) >= _INT32_END:
            message = f"{count:,} records in one partition do not fit int32: use int64 or text"
            raise ConfigError([Problem("records", message)])

    def passing(self, layout: Layout) -> NDArray[np.bool_]:
        """Return bool[n]: which records of a layout pass, what the rules say."""
        good = self.faults == 0
        if self._form.recount is not None:
            return self._numbers.recount(layout.original, good[layout.original], self._form.recount)
        passes = self._numbers.passes(good, self._form.dedup.reorder_window)[layout.original]
        return np.where(layout.kind == RecordKind.FIRST, passes, np.False_)

    @override
    def _written(self, rows: NDArray[np.int32]) -> MarkColumns:
        headers: dict[str, list[bytes]] = {}
        fields: list[list[bytes]] = []
        partition, partitions = self._place
        scopes = (self._numbers.scope[rows].astype(np.int64) * partitions + partition).tolist()
        for name in self._form.scope_headers:
            headers[name] = [b"p-%06d" % scope for scope in scopes]
        fields += [[b'"p-%06d"' % scope for scope in scopes]] * self._form.scope_fields
        columns = (self._numbers.sequence, self._numbers.epoch)
        for (name, part), numbers in zip(self._form.parts.items(), columns, strict=False):
            if name == "epoch" and self._form.dedup.changes:
                texts = [b"boot-%d" % number for number in numbers[rows].tolist()]
                if isinstance(part, HeaderNumber):
                    headers[part.name] = texts
                else:
                    fields.append([b'"%b"' % text for text in texts])
            elif isinstance(part, HeaderNumber):
                headers[part.name] = _in_header(part, numbers[rows])
            elif isinstance(part, ValueNumber):
                fields.append([_in_value(part, b"%d" % number) for number in numbers[rows].tolist()])
        return MarkColumns(headers, fields)


def _in_header(source: HeaderNumber, numbers: NDArray[np.int64]) -> list[bytes]:
    if source.format == "text":
        return [b"%d" % number for number in numbers.tolist()]
    width = 8 if source.format == "int64" else 4
    data = numbers.astype(f">i{width}").tobytes()
    return [data[at : at + width] for at in range(0, len(data), width)]


def _in_value(source: ValueNumber, digits: bytes) -> bytes:
    return b'"' + digits + b'"' if source.format == "text" else digits
