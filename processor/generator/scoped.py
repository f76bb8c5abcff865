"""Records that carry any watermark definition: scope, sequence and epoch, in key, headers or value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from processor.errors import ConfigError, Problem
from processor.generator.marks import Break, MarkColumns, Marks
from processor.generator.pointers import Fields
from schemas.config import HeaderSource, ValueSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from processor.generator.numbering import Numbers
    from schemas.config import WatermarkDedup
    from schemas.config.dedup import SequenceSource

_INT32_END = 2**31
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
        scope_header: Its name, where the scope is a header.
        parts: Sequence, and epoch where there is one, by name.
        fields: Where those stand that are in the value.
        breaks: How records of this form can be made impossible to judge.
    """

    def __init__(self, dedup: WatermarkDedup, key: str) -> None:
        self.dedup = dedup
        self.scope_header = dedup.scope.removeprefix("header:") if dedup.scope.startswith("header:") else None
        self.parts: dict[str, SequenceSource] = {"sequence": dedup.sequence}
        if dedup.epoch is not None:
            self.parts["epoch"] = dedup.epoch
        taken = {self.scope_header}
        pointers = []
        for name, part in self.parts.items():
            if isinstance(part, ValueSource):
                pointers.append((f"{key}.{name}.pointer", part.pointer))
            elif part.name in taken:
                message = f"the header {part.name} holds another part of the definition already"
                raise ConfigError([Problem(f"{key}.{name}.name", message)])
            else:
                taken.add(part.name)
        self.fields = Fields(pointers)
        in_header = isinstance(dedup.sequence, HeaderSource) and dedup.scope == "partition"
        self.plain = in_header and dedup.epoch is None and not dedup.reorder_window
        self.breaks = tuple(self._breaks())

    def _breaks(self) -> Iterator[Break]:
        if self.dedup.scope == "key":
            yield Break("key_missing")
        if self.scope_header is not None:
            # Any bytes are a scope, and no value is none.
            yield from (Break(code, self.scope_header) for code in ("header_missing", "header_malformed"))
        slot = 0
        for part in self.parts.values():
            if isinstance(part, HeaderSource):
                yield Break("header_missing", part.name)
                # Two bytes are no integer, and these no text.
                yield Break("header_malformed", part.name, wrong=b"?#")
                if part.format == "text" and not self.plain:
                    yield Break("out_of_range", part.name, wrong=_TOO_LARGE)
            else:
                yield from (
                    Break(code, slot=slot) for code in ("value_missing", "value_not_json", "field_missing")
                )
                yield Break("field_type", slot=slot, wrong=b"17.5")  # no integer, and no string either
                yield Break("out_of_range", slot=slot, wrong=_in_value(part, _TOO_LARGE))
                slot += 1


class ScopedMarks(Marks):
    """The originals of one partition under any watermark definition.

    ``place`` is the partition's number, and how many there are: their scopes have names of their own.

    Raises:
        ConfigError: The sequences do not fit their format.

    Attributes:
        passes: bool[originals], what the rules say.
    """

    def __init__(
        self, form: ScopeForm, numbers: Numbers, place: tuple[int, int], broken: NDArray[np.int64]
    ) -> None:
        count = numbers.scope.size
        super().__init__(count, form.fields, form.breaks, broken)
        self._form = form
        self._numbers = numbers
        self._place = place
        source = form.dedup.sequence
        in_32_bits = isinstance(source, HeaderSource) and source.format == "int32"
        if in_32_bits and numbers.sequence.max(initial=0) >= _INT32_END:
            message = f"{count:,} records in one partition do not fit int32: use int64 or text"
            raise ConfigError([Problem("records", message)])
        self.passes = numbers.passes(self.faults == 0, form.dedup.reorder_window)

    @override
    def _written(self, rows: NDArray[np.int32]) -> MarkColumns:
        headers, fields = {}, []
        if self._form.scope_header is not None:
            partition, partitions = self._place
            scopes = self._numbers.scope[rows].astype(np.int64) * partitions + partition
            headers[self._form.scope_header] = [b"p-%06d" % scope for scope in scopes.tolist()]
        columns = (self._numbers.sequence, self._numbers.epoch)
        for part, numbers in zip(self._form.parts.values(), columns, strict=False):
            if isinstance(part, HeaderSource):
                headers[part.name] = _in_header(part, numbers[rows])
            else:
                fields.append([_in_value(part, b"%d" % number) for number in numbers[rows].tolist()])
        return MarkColumns(headers, fields)


def _in_header(source: HeaderSource, numbers: NDArray[np.int64]) -> list[bytes]:
    if source.format == "text":
        return [b"%d" % number for number in numbers.tolist()]
    width = 8 if source.format == "int64" else 4
    data = numbers.astype(f">i{width}").tobytes()
    return [data[at : at + width] for at in range(0, len(data), width)]


def _in_value(source: ValueSource, digits: bytes) -> bytes:
    return b'"' + digits + b'"' if source.format == "text" else digits
