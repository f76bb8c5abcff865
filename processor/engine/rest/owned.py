"""Takes over arrays that a library lends: contiguous, writable, of one type.

numba compiles a kernel again for an array that is read-only, as Arrow's buffers are, or that is not contiguous.
Here all kernels get the same kind of array, so that one warm-up compiles all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

D = TypeVar("D", bound="np.generic[Any]")


def owned(array: NDArray[Any], dtype: type[D]) -> NDArray[D]:
    """Return the array if it is writable, contiguous and of this type; otherwise a copy that is."""
    return np.require(array, dtype, ("C_CONTIGUOUS", "WRITEABLE"))
