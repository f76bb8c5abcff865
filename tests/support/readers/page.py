"""Runs the loop of docs/verdicts.md over one partition until it is killed, and writes down what it is given.

Arguments: bootstrap servers, source, topic of verdicts, group, partition, file. A line per record: its offset.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

PAGE = Path(__file__).parents[3] / "docs/verdicts.md"


def page_code(begin: str) -> dict[str, Any]:
    """Return what the block of the page that begins so defines."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = (each for each in blocks if each.startswith(begin))
    names: dict[str, Any] = {}
    exec(block, names)  # noqa: S102 - the page is what is tested
    return names


def main(servers: str, source: str, verdicts: str, group: str, partition: str, file: str) -> None:
    """Read until somebody kills it."""
    read = page_code("import time")["clean_messages"]
    with Path(file).open("a", encoding="ascii") as out:
        while True:
            # A coordinator that was just elected says no once; whoever runs such a program starts it again.
            with suppress(KafkaException):
                for message in read(servers, source, verdicts, group, int(partition)):
                    print(message.offset(), file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
