"""Asks for a certificate, and plants what must break it.

A corruption is planted into a copy: a topic is read, one thing is changed, the rest is written to a new topic,
and the config is pointed at that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.support.kafka.topics import New, create_topic, produce, read_topic, unique
from tests.support.worker import forks

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping

    from tests.support.verify.corruptions import Change
    from tests.support.worker.process import WorkerConfig


@dataclass(frozen=True)
class Told:
    """What `seqmark verify --json` said.

    Attributes:
        code: Exit code.
        partitions: A line each.
        last: The last line.
        stderr: For people.
    """

    code: int
    partitions: list[dict[str, Any]]
    last: dict[str, Any]
    stderr: str

    @property
    def violations(self) -> list[tuple[int, int, str]]:
        """Partition, offset and rule of each."""
        return [
            (line["partition"], each["offset"], each["rule"])
            for line in self.partitions
            for each in line["violations"]
        ]

    @property
    def details(self) -> str:
        """All details, a line each."""
        return "\n".join(each["detail"] for line in self.partitions for each in line["violations"])


def run_verify(
    config: WorkerConfig, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``seqmark verify`` to its end; in a process of its own where ``env`` is given."""
    words = ("verify", "-c", str(config.write()), *arguments)
    return (
        forks.run(*words, folder=config.folder, env=env) if env else forks.inside(*words, folder=config.folder)
    )


def certificate(config: WorkerConfig, *arguments: str) -> Told:
    """Run ``seqmark verify --json`` and read what it says."""
    ended = run_verify(config, "--json", *arguments)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert lines, ended.stderr
    return Told(ended.returncode, lines[:-1], lines[-1], ended.stderr)


def corrupted(config: WorkerConfig, which: str, change: Change) -> WorkerConfig:
    """Return a config with a changed copy of one topic.

    Args:
        config: As it was.
        which: ``source``, ``sink``, ``duplicates`` or ``quarantine``.
        change: Returns what the copy holds, given what the topic holds.
    """
    topic = getattr(config, which)
    copy = unique(topic)
    found = read_topic(config.bootstrap_servers, topic)
    partitions = 1 + max(record.partition for record in found)
    create_topic(config.bootstrap_servers, copy, partitions)
    changed = change(found)
    for number in range(partitions):
        batch = [New(r.key, r.value, r.headers, r.timestamp) for r in changed if r.partition == number]
        if batch:
            produce(config.bootstrap_servers, copy, batch, partition=number)
    (pipeline,) = config.pipelines
    renamed: dict[str, Any] = {which: copy}
    return replace(config, pipelines=(replace(pipeline, **renamed),))
