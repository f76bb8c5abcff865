"""Finds the name that was probably meant. The only importer of difflib."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

MOST_LISTED = 20
"""Names in a message; more are counted."""
# What others call what we call: Kafka's clients, and other stream processors.
_CALLED_HERE = {
    "brokers": "bootstrap_servers",
    "servers": "bootstrap_servers",
    "hosts": "bootstrap_servers",
    "username": "sasl_plain_username",
    "user": "sasl_plain_username",
    "password": "sasl_plain_password",
    "ssl_truststore_location": "ssl_cafile",
    "ssl_keystore_location": "ssl_certfile",
    "group_id": "application_id",
    "consumer_group": "application_id",
    "input": "source",
    "input_topic": "source",
    "output_topic": "sink",
    "target": "sink",
    "dead_letter_queue": "quarantine",
    "dlq": "quarantine",
    "sinks": "aggregates",
    "ttl": "window",
    "retention": "window",
}


def alike(name: str, known: Collection[str], most: int = 3) -> list[str]:
    """Return the known names that look like this one, the likest first.

    A name with all its parts comes first (``sasl_password`` is in ``sasl_plain_password``), then one that
    begins with the same part.
    """
    word = name.lower().replace("-", "_").replace(".", "_")
    by_form = {each.lower().replace("-", "_").replace(".", "_"): each for each in known}
    if word in by_form:
        return [by_form[word]]
    if (called := _CALLED_HERE.get(word, "")) in known:
        return [called]
    parts = word.split("_")
    if len(parts) > 1 and (whole := [each for each in by_form if set(parts) <= set(each.split("_"))]):
        return [by_form[each] for each in sorted(whole, key=len)[:most]]
    close = difflib.get_close_matches(word, by_form, n=4)
    close.sort(key=lambda each: len(parts) < 2 or each.split("_")[0] != parts[0])
    return [by_form[each] for each in close[:most]]


def near(name: str, known: Collection[str]) -> str | None:
    """Return the known name that looks most like this one; None: none does."""
    return next(iter(alike(name, known, 1)), None)


def did_you_mean(name: str, known: Collection[str], otherwise: str = "") -> str:
    """Return a question about the known name that looks most like this one; none does: ``otherwise``."""
    found = near(name, known)
    return otherwise if found is None else f"did you mean {found}?"


def nearest(name: str, known: Collection[str]) -> str:
    """Return a suggestion: the known name that looks most like this one, or those that are known."""
    return did_you_mean(name, known, f"known here: {listed(sorted(known))}")


def listed(names: Sequence[str]) -> str:
    """Return names in one line, many of them cut short."""
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f"{', '.join(names[:MOST_LISTED])}{more}" or "none"


def words(text: str) -> list[str]:
    """Return what stands in double quotes in a message: the words that a key takes."""
    return re.findall(r'"([^"]*)"', text)
