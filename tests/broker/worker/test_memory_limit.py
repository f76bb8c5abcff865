"""A worker that ran within its memory limit starts again within it, whatever its state is read from."""

from __future__ import annotations

import asyncio
import math
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest

from benchmarks.load import Load
from benchmarks.load import produce as produce_load
from tests.support.kafka.topics import until
from tests.support.worker.process import new_config, start_worker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

IDS = 1_440_000
"""In two partitions, so that slots are 0.69 full: with room to spare for all there were twice as many."""
PATIENCE_S = 600.0


def test_a_worker_starts_again_within_the_memory_that_it_ran_in(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 2)
    dedup = {"mode": "insert-id", "id": [{"from": "header", "name": "id"}], "window": "30d"}
    config = replace(config, pipelines=(replace(config.pipelines[0], dedup=dedup),))
    load = Load(records=IDS, duplicates=0, partitions=2, ids="binary")
    asyncio.run(produce_load(config.bootstrap_servers, config.source, load, lambda _: None))
    passed = "seqmark_records_total{pipeline=p,verdict=pass}"
    with start_worker(config, fresh=True) as worker:
        until(lambda: worker.metrics().get(passed) == IDS, "all ids are remembered", PATIENCE_S)
        limit = f"{math.ceil(psutil.Process(worker.pid).memory_info().rss / 1e6)}MB"
        worker.terminate()
        assert worker.wait() == 0

    for kept in (True, False):
        if not kept:
            shutil.rmtree(config.state_dir)
        with start_worker(config.but(memory_limit=limit), fresh=True) as worker:
            worker.wait_ready(PATIENCE_S)
            worker.terminate()
            assert worker.wait() == 0, worker.stderr
