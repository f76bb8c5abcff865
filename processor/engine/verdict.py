"""What can become of a record, and what makes it impossible to judge.

Codes are stable: they stand in receipts, in quarantine headers and in metrics.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

import numpy as np


class Complaint(IntEnum):
    """What a kernel finds wrong with bytes: a code, and what is said of it to a person."""

    text: str

    def __new__(cls, code: int, text: str = "") -> Self:
        """Make a member; a look-up by its code alone finds the same one."""
        self = int.__new__(cls, code)
        self._value_, self.text = code, text
        return self


class Verdict(IntEnum):
    """What the rules say of one record; values of the ``verdict`` column (uint8)."""

    PASS = 0
    DUPLICATE = 1
    LATE = 2
    QUARANTINE = 3
    COLLISION = 4
    """Its id is known, with other content; what becomes of it the config says."""

    @property
    def label(self) -> str:
        """The word used in receipts and metrics."""
        return self.name.lower()


RECEIPTED = np.zeros(len(Verdict), np.bool_)
"""By verdict, whether a record leaves a receipt or a note in the duplicates topic."""
RECEIPTED[[Verdict.DUPLICATE, Verdict.LATE, Verdict.COLLISION]] = True


class Fault(IntEnum):
    """Why a record cannot be judged; values of the ``fault`` column (uint8). 0: it can."""

    NONE = 0
    TOO_LARGE = 1
    HEADER_MISSING = 2
    HEADER_MALFORMED = 3
    KEY_MISSING = 4
    VALUE_MISSING = 5
    VALUE_NOT_JSON = 6
    FIELD_MISSING = 7
    FIELD_TYPE = 8
    OUT_OF_RANGE = 9
    SCOPE_TOO_LARGE = 10
    ID_COLLISION = 11
    VALUE_MALFORMED = 12
    """It lacks what has to stand before its JSON."""

    @property
    def code(self) -> str:
        """The stable code in the header ``seqmark.error``."""
        return self.name.lower()
