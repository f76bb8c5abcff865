"""More of a click where its content counts: where it was made, and when it was sent.

    {...the click..., "context": {"session": {"number": 17, "page": 3}, "device": {...}}, "sent_at": "..."}

Together with the click's own members these are more than ten leaves. ``/context/session/number`` is another in
each original of a partition, so that no two have the same content unless it is excluded. What a pipeline's
fingerprint excludes gets the time of sending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

TELLS_APART = "/context/session/number"
_DEVICES = (("ios", "18.3", 1179, 2556), ("android", "15", 1080, 2400), ("macos", "15.2", 2560, 1664))
_LOCALES = ("de-CH", "fr-FR", "pt-BR", "日本", "en")
_HEADERS = (b"web", b"app", b"\xff\x00")
_SEND_MS = 900

CONTEXT = (
    TELLS_APART,
    "/context/session/page",
    "/context/device/os",
    "/context/device/version",
    "/context/device/screen/0",
    "/context/device/screen/1",
    "/context/locale",
)


class ClickContext:
    """The context of one partition's originals.

    Args:
        rng: Drawn from.
        timestamp_ms: int64[n] of the originals; a view that may change until they are rendered.
        excluded: How many fields get the time of sending.
        headers: Names of headers that count too.
    """

    def __init__(
        self, rng: np.random.Generator, timestamp_ms: NDArray[np.int64], excluded: int, headers: Sequence[str]
    ) -> None:
        self._timestamp_ms = timestamp_ms
        self._excluded = excluded
        self._headers = headers
        self._drawn = rng.integers(0, 60_000, timestamp_ms.size, np.int32)
        self._sent_by = rng.integers(0, len(_HEADERS), timestamp_ms.size, np.uint8)

    def share(self, rows: NDArray[np.int32], with_: NDArray[np.int32]) -> None:
        """Give some originals the context of others, but for their numbers and headers."""
        self._drawn[rows] = self._drawn[with_]

    def fields(self, rows: NDArray[np.int32]) -> list[list[bytes]]:
        """Return a column of JSON texts for each pointer of `CONTEXT`, then those that are excluded."""
        drawn = self._drawn[rows].tolist()
        devices = [_DEVICES[each % 3] for each in drawn]
        sent = np.datetime_as_string(
            (self._timestamp_ms[rows] + 1 + self._drawn[rows] % _SEND_MS).astype("M8[ms]")
        )
        return [
            [b"%d" % (row + 1) for row in rows.tolist()],
            [b"%d" % (each % 17) for each in drawn],
            [b'"%b"' % os.encode() for os, _, _, _ in devices],
            [b'"%b"' % version.encode() for _, version, _, _ in devices],
            [b"%d" % wide for _, _, wide, _ in devices],
            [b"%d" % high for _, _, _, high in devices],
            [b'"%b"' % _LOCALES[each % 5].encode() for each in drawn],
            *[[b'"%bZ"' % each.encode() for each in sent.tolist()] for _ in range(self._excluded)],
        ]

    def headers(self, rows: NDArray[np.int32]) -> dict[str, list[bytes]]:
        """Return a column for each header."""
        shown = [_HEADERS[each] for each in self._sent_by[rows].tolist()]
        return dict.fromkeys(self._headers, shown)
