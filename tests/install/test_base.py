"""A base install does all but Spark, report and PostgreSQL, and names the extra; a user's names are his."""

from __future__ import annotations

import functools
import http.server
import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from processor.broker.jars import KAFKA_JARS, jars_of, resolve
from tests.support.suite.extent import everything

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.suite.installed import Built, Installed

CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:1"
[worker]
application_id = "a"
[[pipelines]]
name = "p"
source = "raw"
sink = "clean"
[pipelines.dedup]
mode = "watermark"
sequence = { from = "header", name = "seq", format = "int64" }
[[aggregates]]
name = "hourly"
topic = "clean"
event = "EVENT"
time_field = "TIME"
window = "1 hour"
watermark = "10 minutes"
aggregates = { events = "count", revenue = "sum:amount" }
output = OUTPUT
checkpoint = "checkpoint"
"""
FILES = '{ kind = "parquet", path = "files" }'
TABLE = '{ kind = "postgres", url = "postgresql://u:secret@h/d", table = "t" }'
PLAIN = {"NUMBA_DISABLE_JIT": "1"}
"""Kernels as plain Python: an installed wheel would compile its own, which takes a minute."""


def config(
    folder: Path, event: str = "schemas.events:ClickEvent", time: str = "occurred_at", output: str = FILES
) -> str:
    text = CONFIG.replace("EVENT", event).replace("TIME", time).replace("OUTPUT", output)
    (folder / "my.toml").write_text(text)
    return "my.toml"


def test_check_finds_a_users_model_and_his_names_break_nothing(base: Installed, stranger: Path) -> None:
    done = base.run("seqmark", "check", "-c", config(stranger, "schemas.my:Model", "at"), folder=stranger)
    assert done.returncode == 0, done.stderr
    assert "the config is right" in done.stderr
    wrong = base.run("seqmark", "check", "-c", config(stranger, "schemas.other:Model", "at"), folder=stranger)
    assert wrong.returncode == 2
    assert "there is no module schemas.other" in wrong.stderr


def test_models_of_the_user_and_of_the_examples_are_found_beside_each_other(
    base: Installed, stranger: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    alone = tmp_path_factory.mktemp("alone")
    ours, his = "schemas.events:ClickEvent", "schemas.my:Model"

    assert fields(base, stranger, ours, his) == ["event_id", "at"]
    assert fields(base, alone, ours, his, path=stranger) == ["event_id", "at"]
    assert fields(base, alone, ours) == ["event_id"]
    (stranger / "schemas" / "events.py").write_text("from schemas.my import Model as ClickEvent\n")
    assert fields(base, stranger, ours, his) == ["at", "at"]


def fields(base: Installed, folder: Path, *events: str, path: Path | None = None) -> list[str]:
    """Return the first field of each event model, as a command that runs in ``folder`` finds it."""
    look = "import sys; from seqmark.schemas.event import EventModel as E"
    say = "print(*(next(iter(E.load(event).fields)) for event in sys.argv[1:]))"
    # Not from the folder that `-c` puts first, as a script does not.
    done = base.run(
        *("python", "-P", "-c", f"{look}; {say}", *events),
        folder=folder,
        env={"PYTHONPATH": str(path)} if path else {},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("command", "output", "said"),
    [
        ("aggregate", FILES, "seqmark: seqmark aggregate needs the extra: pip install 'seqmark[spark]'"),
        (
            "aggregate",
            TABLE,
            "seqmark: seqmark aggregate needs the extras: pip install 'seqmark[spark,postgres]'",
        ),
        ("report", FILES, "seqmark: seqmark report needs the extras: pip install 'seqmark[report,spark]'"),
        ("worker", FILES, "seqmark: worker.otel_endpoint needs the extra: pip install 'seqmark[otel]'"),
    ],
    ids=["spark", "postgres", "report", "otel"],
)
def test_a_command_that_needs_an_extra_says_which_and_ends_with_2(
    base: Installed, tmp_path: Path, command: str, output: str, said: str
) -> None:
    env = {"SEQMARK_WORKER__OTEL_ENDPOINT": "http://127.0.0.1:1"}

    done = base.run("seqmark", command, "-c", config(tmp_path, output=output), folder=tmp_path, env=env)

    assert (done.returncode, done.stdout, done.stderr) == (2, "", said + "\n")


class _Mirror(http.server.BaseHTTPRequestHandler):
    """Serves the jars that this machine has as a Maven repository does; one of them may be another file."""

    def __init__(self, jars: dict[str, Path], *arguments: object) -> None:
        self._jars = jars
        super().__init__(*arguments)  # type: ignore[arg-type] # as the server passes them

    def do_GET(self) -> None:
        jar = self._jars.get(self.path.removeprefix("/maven/"))
        if jar is None:
            self.send_error(404)
            return
        content = jar.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def mirror(cache: Path, **instead: Path) -> Iterator[None]:
    """Let Seqmark take its jars from this machine, by what a user writes into his settings for Ivy."""
    have = {jar.name: jar for jar in resolve(KAFKA_JARS)} | instead
    jars = {path: have[path.rpartition("/")[2]] for path in jars_of(KAFKA_JARS)}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Mirror, jars))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    (cache / "seqmark").mkdir(parents=True)
    root = f"http://127.0.0.1:{server.server_port}/maven/"
    resolver = f'<ibiblio name="mirror" m2compatible="true" root="{root}"/>'
    settings = f"<ivysettings><resolvers>{resolver}</resolvers></ivysettings>"
    (cache / "seqmark" / "ivysettings.xml").write_text(settings)
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.broker
def test_the_demo_runs_from_a_base_install_in_an_empty_cache_and_says_what_it_leaves_out(
    base: Installed, stranger: Path
) -> None:
    with mirror(stranger / "cache"):
        done = base.run(
            *("seqmark", "demo", "--records", "1000", "--json"),
            folder=stranger,
            env={"XDG_CACHE_HOME": str(stranger / "cache")},
        )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["ok"], told["certificate"]) == (True, True)
    assert told["counts"]["in"] == {"found": 1_000, "truth": 1_000}
    assert not {"aggregate", "files", "report"} & told.keys()
    assert (
        "left out: Spark's aggregate by hour and campaign, which needs the extra: pip install 'seqmark[spark]'"
        in done.stderr
    )
    assert "left out: the report, which needs the extra: pip install 'seqmark[report]'" in done.stderr
    assert "kafka-clients-4.3.0.jar" in done.stderr
    assert "everything agrees with the truth" in done.stderr
    assert "Traceback" not in done.stderr + (worker := (stranger / "var/demo/worker.log").read_text())
    # All that it ran came with the wheel.
    assert "ready, partitions" in worker
    assert "compil" not in worker
    assert not list((stranger / "cache" / "seqmark" / "kernels").rglob("*.nbc"))


@pytest.mark.broker
def test_a_jar_that_is_not_the_one_of_the_list_is_not_run(base: Installed, tmp_path: Path) -> None:
    other = tmp_path / "other.jar"
    other.write_bytes(b"something else")
    with mirror(tmp_path / "cache", **{"kafka-clients-4.3.0.jar": other}):
        done = base.run("seqmark", "broker", folder=tmp_path, env={"XDG_CACHE_HOME": str(tmp_path / "cache")})

    assert (done.returncode, done.stdout) == (1, "")
    assert (
        "serves a kafka-clients-4.3.0.jar that is not the one that this version of Seqmark was tested with"
        in done.stderr
    )
    assert not list((tmp_path / "cache" / "seqmark" / "jars").glob("kafka*"))


def test_from_the_registry_it_installs_into_an_empty_environment(
    request: pytest.FixtureRequest, built: Built, tmp_path: Path
) -> None:
    if not everything(request.config):
        pytest.skip("fetches all dependencies: with --tier all")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    subprocess.run([tmp_path / "env/bin/pip", "install", "--quiet", built.wheel], check=True)

    done = subprocess.run(
        [tmp_path / "env/bin/seqmark", "demo", "--records", "20000"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "everything agrees with the truth" in done.stderr
    listed = subprocess.run(
        [tmp_path / "env/bin/pip", "list"], capture_output=True, text=True, check=True
    ).stdout
    assert not {"pyspark", "matplotlib", "psycopg"} & set(listed.split())
