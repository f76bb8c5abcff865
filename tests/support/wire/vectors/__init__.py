"""Batches that other clients wrote, as they lay in a broker's log; README.md says how they came to be."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
RECORDS = FOLDER / "records.tsv"

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""In the order of their numbers in a batch's attributes; also the names that both clients give them."""
CLIENTS = ("java", "librdkafka")


class Known(NamedTuple):
    """A record as it was given to the clients."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


def vector(client: str, what: str) -> Path:
    """Return the file with the batches that ``client`` wrote."""
    return FOLDER / f"{client}-{what}.bin"


def known() -> list[list[Known]]:
    """Return the records of `RECORDS`, grouped as they were flushed."""
    groups: list[list[Known]] = [[]]
    for line in RECORDS.read_text("ascii").splitlines():
        if line == "flush":
            groups.append([])
        elif not line.startswith("#"):
            groups[-1].append(parsed(line))
    return [group for group in groups if group]


def parsed(line: str) -> Known:
    """Read one line in the form of `RECORDS`."""
    fields = line.split("\t")
    headers = [field.split("=") for field in fields[3:]]
    return Known(
        int(fields[0]),
        _bytes(fields[1]),
        _bytes(fields[2]),
        tuple((bytes.fromhex(name), _bytes(value)) for name, value in headers),
    )


def _bytes(field: str) -> bytes | None:
    """Read ``-`` (null) or hexadecimal bytes, ``*N`` after them for N times as many."""
    if field == "-":
        return None
    digits, _, times = field.partition("*")
    return bytes.fromhex(digits) * int(times or 1)
