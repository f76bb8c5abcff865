"""Every line that a page or an example tells to type is run by a test, or stands here with why it cannot be.

A new line fails: run it in a test and name that here, or say why no test can.
"""

from __future__ import annotations

import ast
import shlex
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from processor.config.environment import variables
from tests.support.suite.pages import typed

ROOT = Path(__file__).parents[3]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("deploy/**/*.md"))]
EXAMPLES = sorted(ROOT.glob("examples/*.toml"))

_FIRST_LINES = "tests/broker/commands/test_pages.py::test_the_commands_of_"
_PROOFS = f"{_FIRST_LINES}the_pages_on_sequences_proofs_resets_and_reading_run"
_IDS = "tests/broker/modes/test_insert_id_example.py::test_the_example_keeps_what_the_truth_says"
AS_TYPED = {
    "README.md": f"{_FIRST_LINES}the_page_on_init_and_of_the_readme_run",
    "docs/batch.md": "tests/spark/batch/test_page.py::test_the_example_of_the_page_comes_out_as_it_says",
    "docs/certificate.md": _PROOFS,
    "docs/cold-start.md": (
        "tests/spark/batch/backfill/test_page.py::test_the_example_of_the_page_comes_out_as_it_says"
    ),
    "docs/commands/explain-all.md": _PROOFS,
    "docs/commands/explain.md": (
        "tests/broker/inspection/test_explain_page.py"
        "::test_the_page_shows_what_the_command_prints_and_its_other_commands_run"
    ),
    "docs/commands/audit.md": f"{_FIRST_LINES}the_page_on_init_and_of_the_readme_run",
    "docs/commands/init.md": f"{_FIRST_LINES}the_page_on_init_and_of_the_readme_run",
    "docs/commands/read.md": _PROOFS,
    "docs/commands/simulate.md": f"{_FIRST_LINES}the_page_on_simulate_run",
    "docs/observe.md": _PROOFS,
    "docs/operations.md": _PROOFS,
    "docs/quickstart.md": (
        "tests/broker/commands/test_pages.py::test_the_quickstart_goes_from_an_empty_folder_to_a_certificate"
    ),
    "docs/sequences.md": _PROOFS,
    "docs/spark.md": "tests/spark/test_page.py::test_the_config_of_the_page_counts_by_its_two_commands",
    "examples/aggregates-tables.toml": (
        "tests/spark/outputs/test_lake_example.py::test_each_table_of_the_example_gets_its_rows"
    ),
    "examples/aggregates.toml": (
        "tests/spark/test_sink_examples.py::test_each_output_of_the_example_gets_its_rows"
    ),
    "examples/batch-delta.toml": "tests/spark/batch/test_page.py::test_the_example_of_a_config_runs",
    "examples/batch-iceberg.toml": "tests/spark/batch/test_page.py::test_the_example_of_a_config_runs",
    "examples/batch-topic.toml": (
        "tests/spark/batch/test_topics.py::test_the_example_of_a_config_reads_what_has_come_since"
    ),
    "examples/batch.toml": "tests/spark/batch/test_page.py::test_the_example_of_a_config_runs",
    "examples/clicks.toml": f"{_FIRST_LINES}the_example_of_clicks_run",
    "examples/content.toml": _IDS,
    "examples/fingerprint.toml": _IDS,
    "examples/insert-id-bloom.toml": _IDS,
    "examples/insert-id-routed.toml": (
        "tests/broker/modes/test_route_example.py::test_the_example_passes_each_id_once_wherever_it_was_sent"
    ),
    "examples/insert-id.toml": _IDS,
    "examples/postgres.toml": (
        "tests/postgres/test_example.py::test_the_example_writes_a_topic_into_a_table_once"
    ),
    "examples/verdicts.toml": (
        "tests/spark/test_sink_examples.py::test_the_example_of_verdicts_counts_each_click_once_without_a_clean_topic"
    ),
}
"""The tests that run the `seqmark` lines of a page or an example.

Other are broker, topics, ports and numbers of records; a worker drains, an aggregate that names one takes what
is there, and nobody follows.
"""
_WHEEL = "tests/install/conftest.py::base"
OTHERWISE = {
    "make demo": "tests/broker/commands/test_demo.py::test_everything_agrees_and_what_is_saved_is_said",
    "make dist": "tests/install/conftest.py::built",
    "pip install seqmark": _WHEEL,
    "python3 -m venv seqmark": _WHEEL,
    ". seqmark/bin/activate": _WHEEL,
    "python3 -m venv /opt/seqmark": _WHEEL,
    '/opt/seqmark/bin/pip install "$(echo dist/seqmark-*.whl)[otel]"': _WHEEL,
    "seqmark broker --port 9092 --data-dir var/broker": (
        "tests/broker/kafka/test_embedded.py"
        "::test_the_command_serves_on_the_port_and_folder_that_it_is_told_until_sigterm"
    ),
}
"""Lines that a test runs with the same words, but in a folder, an environment or on a port of its own."""
_DOCKER = "there is no Docker engine; unit/tree/deploy holds what the image and the services are made of"
_CLUSTER = "there is no Kubernetes cluster; unit/tree/deploy holds the chart and the values that are named"
_ROOT = "changes the system, as root, under systemd; unit/tree/deploy holds that what is copied is there"
_SUBMIT = "there is no Spark cluster to submit to; spark/ runs the job itself"
_PAST = "compares with a commit that is there in a whole clone only; unit/tree/test_house.py runs the count"
NOT_RUN = {
    "docker build --tag registry.example/seqmark .": _DOCKER,
    "docker run --rm registry.example/seqmark --version": _DOCKER,
    "docker compose run --rm sink report -c /etc/seqmark/seqmark.toml --output report.html": _DOCKER,
    "helm install clicks deploy/helm/seqmark --set-file config=my.toml "
    "--set image.repository=registry.example/seqmark": _CLUSTER,
    "cp deploy/systemd/seqmark.sysusers.conf /usr/lib/sysusers.d/seqmark.conf": _ROOT,
    "systemd-sysusers": _ROOT,
    "cp deploy/systemd/*.service /etc/systemd/system/": _ROOT,
    "systemctl daemon-reload": _ROOT,
    "version=$(.venv/bin/python -c 'import pyspark; print(pyspark.__version__)')": _SUBMIT,
    "PYSPARK_PYTHON=.venv/bin/python spark-submit --master spark://host:7077 --packages "
    '"org.apache.spark:spark-sql-kafka-0-10_2.13:$version" processor/__main__.py aggregate -c my.toml': _SUBMIT,
    "python -m venv env": _SUBMIT,
    "env/bin/pip install 'seqmark[spark]' venv-pack": _SUBMIT,
    "env/bin/venv-pack -o env.tar.gz": _SUBMIT,
    "PYSPARK_PYTHON=./env/bin/python spark-submit --archives env.tar.gz#env job.py": _SUBMIT,
    "PYSPARK_PYTHON=./env/bin/python env/bin/seqmark aggregate -c my.toml --master spark://host:7077 "
    "--conf spark.archives=env.tar.gz#env": _SUBMIT,
    "mkdir /tmp/before": _PAST,
    "git archive 5fc7e47 | tar x -C /tmp/before": _PAST,
    "python -m tests.unit.tree.house /tmp/before .": _PAST,
}
"""Lines that no test can run, each with its reason. What they name is checked where that can be."""


class Typed(NamedTuple):
    """One line to type, and where it stands."""

    page: str
    line: str


TYPED = [Typed(page.relative_to(ROOT).as_posix(), line) for page in (*PAGES, *EXAMPLES) for line in typed(page)]


@cache
def _functions(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_there_are_lines_of_pages_and_of_examples() -> None:
    assert len(TYPED) >= 55
    assert {"README.md", "docs/deploy.md", "examples/clicks.toml"} <= {each.page for each in TYPED}


@pytest.mark.parametrize("told", dict.fromkeys(TYPED), ids=lambda told: f"{told.page}: {told.line[:50]}")
def test_a_line_to_type_is_run_or_said_not_to_be(told: Typed) -> None:
    if told.line in NOT_RUN or told.line in OTHERWISE:
        return
    if told.line.startswith("export "):
        assert_variables_exist(told.line)
        return
    assert told.line.startswith("seqmark "), "no test runs this line: name one here, or say why none can"
    assert told.page in AS_TYPED, "no test runs the lines of this page: write one, and name it here"


def assert_variables_exist(line: str) -> None:
    """Assert that what a line exports are keys of the config: a test gives them values of its own."""
    given = dict(word.split("=", 1) for word in shlex.split(line)[1:])
    found, problems = variables(given)
    assert not problems
    assert len(found) == len(given)


@pytest.mark.parametrize("test", sorted({*AS_TYPED.values(), *OTHERWISE.values()}))
def test_a_test_that_is_named_is_there(test: str) -> None:
    file, _, function = test.partition("::")

    assert function in _functions(ROOT / file)


@pytest.mark.parametrize(("page", "test"), AS_TYPED.items())
def test_a_test_takes_the_lines_from_the_page(page: str, test: str) -> None:
    """Its file names the page: nothing in it is a copy that could grow old."""
    source = (ROOT / test.partition("::")[0]).read_text()

    assert Path(page).name in source


def test_nothing_is_listed_that_no_page_says() -> None:
    lines, pages = {each.line for each in TYPED}, {each.page for each in TYPED}

    assert lines >= NOT_RUN.keys() | OTHERWISE.keys()
    assert pages >= AS_TYPED.keys()


def test_make_demo_is_the_command_that_is_tested() -> None:
    makefile = (ROOT / "Makefile").read_text()

    assert "$(BIN)/seqmark demo $(ARGS)" in makefile
