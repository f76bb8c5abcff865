"""How many examples a property tries: more than most, or fewer, and in each run as many as it is worth."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100


def examples(number: int) -> settings:
    """Return settings for ``number`` examples where a property without a word has 100.

    The profile that `tests.conftest` loads says how many that are in this run.
    """
    return settings(max_examples=max(1, number * settings.default.max_examples // USUAL))  # type: ignore[union-attr] # a profile is loaded
