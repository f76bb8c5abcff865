"""Grows arrays in place: memory is moved by its pages and not copied, where there is much of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

A = TypeVar("A", bound="np.generic[Any]")


def grown(array: NDArray[A], rows: int, share: int) -> NDArray[A]:
    """Return the array with at least so many rows; no view of it may outlive the call.

    Args:
        array: Owns its memory.
        rows: Along the first axis.
        share: Where it has fewer, it grows by a ``share``-th at least. What is new is zero.
    """
    have = array.shape[0]
    if have < rows:
        array.resize((max(rows, have + have // share), *array.shape[1:]), refcheck=False)
    return array
