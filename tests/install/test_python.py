"""Seqmark from Python: the page's example runs, and what is wrong is raised as it is said by the commands."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from seqmark import Config, ConfigError, StopError, run_worker, verify
from tests.support.kafka.topics import unique
from tests.support.suite.installed import ROOT, WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

PAGE = (ROOT / "docs/python.md").read_text()
CONFTEST, EXAMPLE = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(TOML,) = re.findall(r'CONFIG = """(.*?)"""', EXAMPLE, re.DOTALL)


def load(folder: Path, text: str, servers: str) -> Config:
    (folder / "my.toml").write_text(text.replace('"state"', f'"{folder}/state"'))
    return Config.load(folder / "my.toml", {"SEQMARK_KAFKA__BOOTSTRAP_SERVERS": servers})


@pytest.mark.broker
def test_the_example_of_the_page_passes_with_the_fixture_that_it_enables(
    broker: Broker, tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    # Of its own: another page has an application and topics of this name, maybe on the same broker.
    own = unique("orders")
    example = EXAMPLE.replace("orders.", f"{own}.").replace(
        'application_id = "orders"', f'application_id = "{own}"'
    )
    (tmp_path / "test_orders.py").write_text(example)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(ROOT), "SEQMARK_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )

    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.broker
def test_what_cannot_go_on_is_raised_also_in_another_thread(broker: Broker, tmp_path: Path) -> None:
    config = load(tmp_path, TOML.replace("orders.", "nobody."), broker.bootstrap_servers)

    with pytest.raises(StopError, match=r"nobody\.raw: the source of pipeline orders does not exist"):
        asyncio.run(asyncio.to_thread(run_worker, config, drain=True))
    with pytest.raises(StopError, match=r"nobody\.raw: there is no such topic"):
        verify(config)
    with pytest.raises(RuntimeError, match="main thread"):
        asyncio.run(asyncio.to_thread(run_worker, config))


def test_a_wrong_config_says_every_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, TOML.replace('"1h"', '"soon"').replace("web_port = 0", "web_port = -1"), "h:1")
    assert {each.key for each in caught.value.problems} == {"worker.web_port", "pipelines.0.dedup.window"}
    with pytest.raises(ConfigError, match="at least one"):
        load(tmp_path, TOML.partition("[[pipelines]]")[0], "h:1")
    with pytest.raises(ConfigError, match="there is no pipeline others"):
        verify(load(tmp_path, TOML, "h:1"), "others")
