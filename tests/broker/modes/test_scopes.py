"""Scopes on a real broker: where they are restored from, and what the changelog has of each."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from schemas.changelog.watermark import ScopeValue, watermark_key
from tests.support.kafka.topics import New, int64
from tests.support.worker.process import (
    WorkerConfig,
    new,
    new_config,
    produce,
    read_topic,
    run_drain,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

EPOCH = {"from": "header", "name": "epoch", "format": "int64"}


def scoped(broker: Broker, folder: Path, **dedup: Any) -> WorkerConfig:
    config = new_config(broker.bootstrap_servers, folder)
    (pipeline,) = config.pipelines
    return replace(config, pipelines=(replace(pipeline, dedup=dedup),))


def of(scope: bytes, number: int, epoch: int = 0) -> New:
    headers = [("epoch", int64(epoch)), ("producer", scope)]
    return new(number, scope, b"%d" % number, headers=headers)


def passed(config: WorkerConfig, *more: New) -> list[tuple[bytes | None, int]]:
    """Produce, drain, and return what is in the sink by then."""
    produce(config.bootstrap_servers, config.source, more)
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    return [
        (record.key, int(record.value or b"")) for record in read_topic(config.bootstrap_servers, config.sink)
    ]


@pytest.mark.drawn("scope")
@pytest.mark.parametrize("scope", ["key", "header:producer"])
def test_each_scope_has_a_sequence_of_its_own_whether_restored_from_disk_or_changelog(
    broker: Broker, tmp_path: Path, scope: str
) -> None:
    config = scoped(broker, tmp_path, scope=scope)
    some = [of(b"%d" % producer, number) for number in range(20) for producer in range(300)]
    once = passed(config, *some, *some[:500])
    assert once == [(record.key, int(record.value or b"")) for record in some]

    assert passed(config, *some[-300:], of(b"7", 20)) == [*once, (b"7", 20)]
    shutil.rmtree(config.state_dir)
    assert passed(config, *some[-300:], of(b"7", 20), of(b"", 1)) == [*once, (b"7", 20), (b"", 1)]


def test_the_last_of_each_scope_stands_in_the_changelog(broker: Broker, tmp_path: Path) -> None:
    config = scoped(broker, tmp_path, scope="key", epoch=EPOCH, reorder_window=64)
    passed(config, of(b"a", 1), of(b"a", 2), of(b"b", 5, 1), of(b"b", 4, 1), of(b"c", 1), of(b"c", 3))
    last = {record.key: record.value for record in read_topic(config.bootstrap_servers, config.changelog)}
    keys = [watermark_key(scope) for scope in (b"a", b"b", b"c")]
    a, b, c = (ScopeValue.decode(key, last[key] or b"") for key in keys)
    assert (a, b) == (ScopeValue(2, 0, run=1), ScopeValue(5, 1, run=1))
    assert (c.sequence, c.epoch, c.window, c.ring) == (3, 0, 64, (1 << 1,))
