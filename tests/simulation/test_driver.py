"""The driver for users: what its page shows, and what pipelines do in it that the page does not show."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from seqmark import Config, StopError
from seqmark.testing import Driver, DriverRecord
from tests.support.suite.installed import ROOT

if TYPE_CHECKING:
    from pathlib import Path

(EXAMPLE,) = re.findall(
    r"^```python\n(.*?)^```$", (ROOT / "docs/testing.md").read_text(), re.MULTILINE | re.DOTALL
)
HEAD = '[kafka]\nbootstrap_servers = "nowhere:9092"\n[worker]\napplication_id = "app"\n'
SEQUENCE = 'mode = "watermark"\nsequence = { from = "header", name = "seq", format = "text" }\n'


def driver(folder: Path, pipelines: str, partitions: int = 1) -> Driver:
    """Return a driver of some pipelines."""
    (folder / "my.toml").write_text(HEAD + pipelines)
    return Driver(Config.load(folder / "my.toml", {}), partitions=partitions)


def pipeline(name: str, source: str, dedup: str, **keys: str) -> str:
    """Return an element of ``[[pipelines]]`` whose sink has its name."""
    more = "".join(f'{key} = "{value}"\n' for key, value in keys.items())
    head = f'[[pipelines]]\nname = "{name}"\nsource = "{source}"\nsink = "{name}.clean"\n{more}'
    return f"{head}[pipelines.dedup]\n{dedup}"


def numbered(*numbers: int) -> list[DriverRecord]:
    """Return records with sequences."""
    return [DriverRecord(b"%d" % number, headers=[("seq", b"%d" % number)]) for number in numbers]


def values(driver: Driver, topic: str) -> list[Any]:
    """Return what stands in a topic."""
    return [record.value for record in driver.read(topic)]


def test_the_example_of_the_page_passes(tmp_path: Path) -> None:
    space: dict[str, Any] = {}
    exec(compile(EXAMPLE, "docs/testing.md", "exec"), space)  # noqa: S102 - our own page
    (test,) = [each for name, each in space.items() if name.startswith("test_")]
    test(tmp_path)


def test_a_pipeline_that_reads_anothers_sink_comes_after_it(tmp_path: Path) -> None:
    second = pipeline("second", "first.clean", SEQUENCE)
    chained = driver(tmp_path, second + pipeline("first", "raw", SEQUENCE, duplicates="dropped"))
    chained.produce("raw", numbered(1, 2, 2, 3))
    counts = chained.run()
    assert (counts["first"]["pass"], counts["second"]["pass"]) == (3, 3)
    assert values(chained, "second.clean") == [b"1", b"2", b"3"]
    assert len(chained.read("dropped")) == 1


def test_a_record_that_cannot_be_judged_stops_it_each_time_and_what_came_before_is_committed(
    tmp_path: Path,
) -> None:
    strict = driver(tmp_path, pipeline("p", "raw", SEQUENCE))
    strict.produce("raw", [*numbered(1), DriverRecord(b"none"), *numbered(2)])
    for _ in range(2):
        with pytest.raises(StopError, match=r"raw:0:1: the record cannot be judged"):
            strict.run()
    assert values(strict, "p.clean") == [b"1"]


def test_a_routed_id_passes_once_over_all_partitions(tmp_path: Path) -> None:
    ids = 'mode = "insert-id"\nid = [{ from = "key" }]\nwindow = "1h"\nroute = "by-id"\n'
    routed = driver(tmp_path, pipeline("p", "raw", ids), partitions=3)
    for number in range(3):
        routed.produce("raw", [DriverRecord(b"v", b"%d" % key, partition=number) for key in range(20)])
    routed.run()
    assert sorted(record.key or b"" for record in routed.read("p.clean")) == sorted(
        b"%d" % key for key in range(20)
    )


def test_a_topic_that_the_config_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    made = driver(tmp_path, pipeline("p", "raw", SEQUENCE))
    with pytest.raises(
        ValueError, match=r"no topic rwa: the config has app-p-changelog, app-p-index, p\.clean, raw"
    ):
        made.produce("rwa", [b"v"])
    with pytest.raises(ValueError, match="raw has 1 partitions, and none is 1"):
        made.produce("raw", [DriverRecord(b"v", partition=1)])


def test_who_asks_for_the_broker_imports_no_kernels() -> None:
    code = "import sys, seqmark.testing; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
