"""Takes records apart: what each holds that could tell it from others.

A place is a header, the key, a member of the JSON value, also of JSON in one of its strings, or a column of a
text. What stands there is text, told from other kinds by its `Kind`. Two records have the same content if their
values have the same leaves, however they are written.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from processor.engine.extract.json_matches import AUTO, JsonRules
from processor.inspection.proposal.near import changing
from processor.inspection.proposal.record_parts import KEY, Kind, Leaf, ObservedRecord, RecordPart
from processor.inspection.proposal.spellings import respelled, spellings
from processor.ops.status_text import count

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from processor.inspection.topic_records import TopicRecord

FEW = 50
"""Records below which a sample says little."""
MOST_DEPTH = 6
"""Of objects within objects: an id does not lie deeper."""
MOST_NESTED = 128
"""The contract's bound: what is nested deeper is not JSON for a worker."""
MOST_LEAVES = 1_000
"""Of one value; what has more is compared by its bytes, and the rest of its members is not looked at."""


_LEAST_COLUMNS = 4
"""Of a text that is taken for columns."""


def observe(records: Sequence[TopicRecord], more: frozenset[RecordPart] = frozenset()) -> list[ObservedRecord]:
    """Take records apart; those of a partition must be in the order of their offsets.

    Args:
        records: They.
        more: Parts in which copies are known to differ from their originals, beside those that are seen here.
    """
    clocks: dict[int, int] = {}
    separator = _separator([record.value for record in records if record.value is not None])
    found = [_observed(record, clocks, separator) for record in records]
    if spelled := spellings(found):
        found = [_respelled(record, spelled) for record in found]
    parts = changing(found) | more
    return [replace(record, changing=parts) for record in found] if parts else found


def _respelled(record: ObservedRecord, spelled: dict[RecordPart, str]) -> ObservedRecord:
    """Return a record whose ids are read as they are meant."""
    new = {
        place: respelled(record.leaves[place], kind)
        for place, kind in spelled.items()
        if place in record.leaves
    }
    content = record.content
    if isinstance(content, frozenset):
        names = {place.name: leaf for place, leaf in new.items()}
        content = frozenset((name, names.get(name, leaf)) for name, leaf in content)
    return replace(record, leaves={**record.leaves, **new}, content=content, spelled=spelled)


def _separator(values: Sequence[bytes]) -> str:
    """Return what parts the columns of texts that have as many each; empty: they are no such texts."""
    for each in "\t|;":
        numbers = {value.count(each.encode()) for value in values}
        if len(numbers) == 1 and min(numbers) >= _LEAST_COLUMNS - 1:
            return "" if any(_parsed(value).json is not None for value in values[:FEW]) else each
    return ""


def _observed(record: TopicRecord, clocks: dict[int, int], separator: str) -> ObservedRecord:
    clock = clocks[record.partition] = max(clocks.get(record.partition, record.timestamp), record.timestamp)
    leaves = {KEY: Leaf(Kind.STRING, record.key)} if record.key is not None else {}
    unnamed = set()
    # Of several headers of one name the last counts, also where it has no value.
    for name, content in dict(record.headers).items():
        # What is no UTF-8 becomes what cannot be printed: no config can name it.
        place = RecordPart("header", name if isinstance(name, str) else name.decode(errors="surrogateescape"))
        if content is not None and place.name.strip() and place.name.isprintable():
            leaves[place] = Leaf(Kind.STRING, content)
        elif content is not None:
            unnamed.add(place)
    parsed = _parsed(record.value)
    value = parsed.json
    members = [] if value is None else list(islice(_members(value, "", 0), MOST_LEAVES + 1))
    named = [member for member in members if member.named and member.leaf != _NULL]  # to a worker it is missing
    leaves |= {RecordPart("value", member.pointer): member.leaf for member in named}
    for member in named:
        if isinstance(member.leaf.text, str) and member.leaf.text[:1] == "{":
            inner = _parsed(member.leaf.text.encode(errors="surrogateescape")).json
            leaves |= {
                RecordPart("value", f"{member.pointer}|{each.pointer}"): each.leaf
                for each in islice(_members(inner, "", 0), MOST_LEAVES if inner else 0)
                if each.named and each.leaf != _NULL
            }
    unnamed |= {RecordPart("value", member.pointer) for member in members if member.unprintable}
    content_: Hashable = record.value
    if value is not None and len(members) <= MOST_LEAVES:
        content_ = frozenset((member.pointer, member.leaf) for member in members)
    elif value is None and record.value is not None and separator:
        texts = record.value.decode(errors="surrogateescape").split(separator)
        columns = {f"{number}{separator}": Leaf(Kind.STRING, text) for number, text in enumerate(texts, 1)}
        leaves |= {RecordPart("column", name): leaf for name, leaf in columns.items() if leaf.text}
        content_ = frozenset(columns.items())
    times = record.partition, record.timestamp, clock
    kinds = value is not None, record.value is None
    return ObservedRecord(
        *times,
        leaves,
        content_,
        *kinds,
        frozenset(unnamed),
        is_lenient=parsed.is_lenient,
        events=parsed.events,
        is_utf8=parsed.is_utf8,
    )


class _Member(NamedTuple):
    pointer: str
    leaf: Leaf
    named: bool
    """Whether a config could name it: in no array, not too deep, and printable."""
    unprintable: bool
    """Whether it is not named for that alone."""


def _members(
    value: Any, pointer: str, depth: int, *, named: bool = True, unprintable: bool = False
) -> Iterator[_Member]:
    """Yield the leaves of a JSON value; empty containers are leaves."""
    if depth > MOST_NESTED:
        yield _Member(pointer, Leaf(Kind.OTHER, "nested too deep"), named=False, unprintable=False)
    elif isinstance(value, dict) and value:
        for name, inner in value.items():
            below = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            reached = (named or unprintable) and depth < MOST_DEPTH
            known = reached and named and name.isprintable()
            yield from _members(inner, below, depth + 1, named=known, unprintable=reached and not known)
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _members(inner, f"{pointer}/{index}", depth + 1, named=False)
    else:
        leaf = value if isinstance(value, Leaf) else _leaf(value)
        yield _Member(pointer, leaf, named=named, unprintable=unprintable)


_NULL = Leaf(Kind.OTHER, "null")


def _leaf(value: Any) -> Leaf:
    if not isinstance(value, str):
        return Leaf(Kind.OTHER, json.dumps(value))
    # By bytes that are not UTF-8 nothing is judged.
    return Leaf(Kind.STRING if _is_utf8(value) else Kind.OTHER, value)


class _Parsed(NamedTuple):
    json: Any
    """Numbers are leaves with their text; None: it is no JSON, or null."""
    is_lenient: bool
    is_utf8: bool
    events: int


def _parsed(value: bytes | None) -> _Parsed:
    """Read a value as the worker may: behind a registry's five bytes, and leniently."""
    if value is None:
        return _Parsed(None, is_lenient=False, is_utf8=False, events=1)
    for rules, decoder in _DECODERS.items():
        try:
            text = rules.text(value)
            found = decoder.decode(text)
        except (ValueError, RecursionError):
            continue
        many = isinstance(found, list) and all(isinstance(each, dict) and each for each in found)
        return _Parsed(found, rules.lenient, _is_utf8(text), max(1, len(found) if many else 1))
    lines = [line for line in value.splitlines() if line.strip()]
    try:
        documents = [isinstance(_STRICT.decode(line.decode()), dict) for line in lines]
    except (ValueError, RecursionError):
        documents = []
    events = max(1, len(documents) if all(documents) else 1)
    return _Parsed(None, is_lenient=False, is_utf8=False, events=events)


def _is_utf8(text: str) -> bool:
    return text.isascii() or text.encode(errors="ignore").decode() == text


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _decoder(constant: Callable[[str], Any]) -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_int=lambda text: Leaf(Kind.INTEGER, text),
        parse_float=lambda text: Leaf(Kind.NUMBER, text),
        parse_constant=constant,
    )


_STRICT = _decoder(_no_constant)
_DECODERS = {
    JsonRules(lenient=False, framing=AUTO): _STRICT,
    JsonRules(lenient=True, framing=AUTO): _decoder(lambda text: Leaf(Kind.OTHER, text)),
}


def remarks(records: Sequence[ObservedRecord]) -> list[str]:
    """Return what is wrong with some of the records, whatever they are judged by."""
    notes = []
    if len(records) < FEW:
        notes.append(f"only {count(len(records), 'record')} there: look over what is proposed")
    valued = [record for record in records if not record.is_null]
    unread = sum(not record.is_json for record in valued)
    if unread:
        which = (
            "no value is JSON"
            if unread == len(valued)
            else f"{count(unread, 'value')} of {len(valued):,} {'is' if unread == 1 else 'are'} no JSON"
        )
        registry = all(isinstance(each.content, bytes) and each.content[:1] == b"\0" for each in valued)
        like = " (Avro or Protobuf of a schema registry, by their first byte)" if registry else ""
        notes.append(f"{which}{like}: only headers, keys and whole values can tell such records apart")
    if len(valued) < len(records):
        notes.append(f"{count(len(records) - len(valued), 'record')} without a value (tombstones)")
    return notes + _left_out(records)


def _left_out(records: Sequence[ObservedRecord]) -> list[str]:
    """Say how many places were not looked at for their names."""
    sources = Counter(place.source for place in frozenset().union(*(each.unnamed for each in records)))
    words = (("header", "header"), ("value", "JSON member"))
    return [
        f"{count(sources[source], word)} {'was' if sources[source] == 1 else 'were'} not looked at: "
        f"{'its name is' if sources[source] == 1 else 'their names are'} not printable"
        for source, word in words
        if sources[source]
    ]
