"""Finds values of fingerprints and of renaming that are wrong together.

As in `schemas.config.rules`, which calls this: rules look at right values only, so that a wrong one does not
hide the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schemas.config.dedup import HeaderId, ValueId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from schemas.config.dedup import IdPart

Where = tuple[str | int, ...]
Violation = tuple[Where, str]


def fingerprint_violations(
    dedup: Mapping[str, Any], written: Mapping[str, Any], *, quarantine: bool
) -> Iterator[Violation]:
    """Yield every broken rule of the fingerprint, and of what becomes of collisions.

    Args:
        dedup: Right values of a table ``dedup`` of mode insert-id, those of its tables too.
        written: The same as it was written: a key with a wrong value is not a missing one.
        quarantine: Whether its pipeline has a topic for quarantine.
    """
    action = dedup.get("on_collision")
    if "fingerprint" in written:
        if dedup.get("backend") == "bloom":
            message = (
                "Bloom filters keep no fingerprints: leave it out; "
                'or take backend = "exact", without the table bloom'
            )
            yield ("fingerprint",), message
        yield from uncounted_violation(("fingerprint",), written["fingerprint"])
    elif "on_collision" in written:
        yield ("on_collision",), "needs a fingerprint: without one no record is a collision"
    if action == "quarantine" and not quarantine:
        yield ("on_collision",), '"quarantine" needs a quarantine topic, which this pipeline does not have'
    if action == "rename" and "rename" not in written:
        yield ("on_collision",), '"rename" needs rename = { to = "..." }, the part of the id that is replaced'
    if "rename" in written:
        if action not in {"rename", None}:
            yield ("rename",), f'has no effect with on_collision "{action}"; write on_collision = "rename"'
        yield from _rename(dedup["rename"], dedup.get("id"))


def uncounted_violation(where: Where, table: Any) -> Iterator[Violation]:
    """Yield what is wrong where fields are excluded of a value that counts as it stands."""
    if isinstance(table, dict) and table.get("of") == "bytes" and table.get("exclude"):
        yield (*where, "exclude"), 'has no effect with of = "bytes": nothing is read of the value'


def _rename(rename: Mapping[str, Any], parts: Sequence[IdPart] | None) -> Iterator[Violation]:
    to, keep = rename.get("to"), rename.get("keep")
    if to is not None and parts is not None and to not in (can := _renamable(parts)):
        message = "must be a part of the id"
        yield ("rename", "to"), f"{message}: {' or '.join(map(repr, can))}" if can else f"{message}, {_NONE}"
    if to is None or keep in {"header", None} or to.startswith("header:"):
        return
    if f"{keep}/".startswith(f"{to}/") or f"{to}/".startswith(f"{keep}/"):
        yield ("rename", "keep"), "must be another member than rename.to, neither around it nor inside"


_NONE = (
    "and none of this one can be renamed: only headers and fields of the value can, neither normalised, nor in "
    "any, nor through a string"
)


def _renamable(parts: Sequence[IdPart]) -> list[str]:
    plain = [part for part in parts if isinstance(part, ValueId | HeaderId) and not part.normalise]
    pointers = [part.pointer for part in plain if isinstance(part, ValueId) and "|/" not in part.pointer]
    return [*pointers, *(f"header:{part.name}" for part in plain if isinstance(part, HeaderId))]
