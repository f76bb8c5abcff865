"""Resets a pipeline, and reads what the changelog says of it then.

ended = run_reset(config, "--to-offset", "0:12")     # as users type it
assert ended.lines == [{"pipeline": "p", "partition": 0, "from": 30, "to": 12, ...}]
assert changelog_state(config) == {...}              # what a worker without local state would restore
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from schemas.changelog.position import Origin, Position
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY
from schemas.changelog.watermark import ScopeValue
from tests.support.kafka.topics import read_topic
from tests.support.worker import forks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.worker.process import WorkerConfig


@dataclass(frozen=True)
class Answer:
    """How a reset ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The objects on stdout."""
        return [json.loads(line) for line in self.stdout.splitlines()]


def run_reset(
    config: WorkerConfig,
    *arguments: str,
    pipeline: str = "p",
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> Answer:
    """Run ``seqmark reset --json`` to its end; in a process of its own where ``env`` is given."""
    command = ["reset", "-c", str(config.write()), "--json", "--pipeline", pipeline, *arguments]
    if env:
        ended = forks.run(*command, folder=config.folder, env=env, timeout_s=timeout_s)
    else:
        ended = forks.inside(*command, folder=config.folder)
    return Answer(ended.returncode, ended.stdout, ended.stderr)


@dataclass(frozen=True)
class Remembered:
    """What one changelog partition says.

    Attributes:
        position: The last.
        origin: The last.
        scopes: Watermarks by key, of those behind the origin.
    """

    position: Position | None
    origin: Origin | None
    scopes: dict[bytes, ScopeValue]


def remembered(config: WorkerConfig, partition: int = 0) -> Remembered:
    """Read a changelog with another client, and forget at an origin what stands before it."""
    position = origin = None
    scopes: dict[bytes, ScopeValue] = {}
    for record in read_topic(config.bootstrap_servers, config.changelog):
        if record.partition != partition or record.value is None:
            continue
        key = record.key or b""
        if key == ORIGIN_KEY:
            position, origin, scopes = None, Origin.decode(record.value), {}
        elif key == POSITION_KEY:
            position = Position.decode(record.value)
        else:
            scopes[key] = ScopeValue.decode(key, record.value)
    return Remembered(position, origin, scopes)
