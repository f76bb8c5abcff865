"""The contract holds on each Kafka that docs/versions.md names, and on the newest there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support.kafka.versions import OTHERS, VARIABLE
from tests.support.suite.closure import ROOT
from tests.support.suite.extent import everything, named

pytestmark = pytest.mark.broker

LIMIT_S = 3600
"""Ten minutes of two quiet cores are enough for the stories; the jars come from the network once."""
LEAST = 100
"""Stories of the contract: fewer would not be all of them."""


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("version", OTHERS)
def test_the_contract_holds_on(request: pytest.FixtureRequest, version: str) -> None:
    if not everything(request.config) and not named(request.config):
        pytest.skip(f"make test-all runs it, and {VARIABLE}={version} with tests/broker/contract")
    taken = {name for name in os.environ if name.startswith("SEQMARK_") and name != "SEQMARK_TEST_RUN"}
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in taken or name.startswith("SEQMARK_BROKER_")
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/broker/contract"]

    run = subprocess.run(
        command,
        cwd=ROOT,
        env={**env, VARIABLE: version},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )

    print(run.stdout[-20_000:])  # noqa: T201 - with -s, and where it fails
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-2_000:]
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None
    assert int(passed[1]) >= LEAST
