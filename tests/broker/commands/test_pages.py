"""What README.md and docs/quickstart.md show is what the programs print; the commands of other pages run."""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.support.kafka.topics import New, create_topic, produce, unique
from tests.support.suite.pages import typed
from tests.support.worker import forks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GUIDES = ("sequences.md", "certificate.md", "operations.md", "observe.md")
NO_PORT = {"SEQMARK_WORKER__WEB_PORT": "0"}


class Place(NamedTuple):
    """An empty folder, a broker, and a name of its own in place of the page's `clicks`."""

    folder: Path
    bootstrap: str
    name: str

    def here(self, text: str) -> str:
        """Return what a page shows, with this broker and this name."""
        text = text.replace("localhost:9092", self.bootstrap).replace('"clicks"', f'"{self.name}"')
        return text.replace('"try"', f'"{self.name}-try"').replace("clicks.", f"{self.name}.")

    def there(self, text: str) -> str:
        """Return what a program has printed, with the page's names."""
        return text.replace(self.bootstrap, "localhost:9092").replace(self.name, "clicks")

    def run(self, line: str) -> tuple[str, str]:
        """Run ``seqmark ...`` as a page has it; return what it printed and what it said."""
        program, *arguments = shlex.split(self.here(line), comments=True)
        assert program == "seqmark"
        done = forks.run(*arguments, folder=self.folder, env=NO_PORT)
        assert done.returncode == 0, (line, done.stderr)
        return self.there(done.stdout), self.there(done.stderr)


@pytest.fixture
def place(broker: Broker, tmp_path: Path) -> Place:
    return Place(tmp_path, broker.bootstrap_servers, unique("clicks"))


def blocks(page: str) -> list[tuple[str, str]]:
    """Return language and text of each block of code."""
    return BLOCK.findall((ROOT / page).read_text())


@pytest.mark.fast
def test_the_first_lines_of_the_readme_are_what_a_worker_makes_of_them(place: Place) -> None:
    shown = re.findall(r"^\$ (.*)\n((?:[^$\n].*\n)+)", blocks("README.md")[0][1], re.MULTILINE)
    (config,) = [text for kind, text in blocks("README.md") if kind == "toml" and "clicks.raw" in text]
    (place.folder / f"{place.name}.toml").write_text(place.here(config))
    source = place.here("clicks.raw")
    create_topic(place.bootstrap, source)
    produce(place.bootstrap, source, list(records(shown[0][1])))

    place.run("seqmark worker -c clicks.toml --drain")

    assert len(shown) == 3
    for command, printed in shown:
        assert place.run(command)[0] == printed


def records(lines: str) -> Iterator[New]:
    """Yield the records whose lines `seqmark read` has printed."""
    for line in lines.splitlines():
        _, time, key, value = line.split(maxsplit=3)
        timestamp = datetime.fromisoformat(time).timestamp()
        yield New(key.encode(), value.encode(), (), round(timestamp * 1000))


def test_the_quickstart_goes_from_an_empty_folder_to_a_certificate(place: Place) -> None:
    said = ""
    for kind, text in blocks("docs/quickstart.md"):
        if kind == "toml":
            (place.folder / "try.toml").write_text(place.here(text))
        elif kind == "shell":
            lines = [line for line in text.splitlines() if re.match(r"seqmark (?!broker)", line)]
            said = "".join(part for line in lines for part in place.run(line))
        else:
            assert shape(text) <= shape(said), said


EVENTS = """
[[pipelines]]
name = "events"
source = "clicks.events.raw"
sink = "clicks.events.clean"

[pipelines.dedup]
mode = "insert-id"
id = [{ from = "value", pointer = "/event_id" }]
window = "7d"
"""


CLICKS = """
[kafka]
bootstrap_servers = "localhost:9092"

[worker]
application_id = "clicks"

[[pipelines]]
name = "clicks"
source = "clicks.raw"
sink = "clicks.clean"

[pipelines.dedup]
mode = "insert-id"
id = [{ from = "value", pointer = "/event_id" }]
window = "1d"
"""


def events() -> list[New]:
    """Return events of one user, with an id each."""
    values = [b'{"event_id": "%016x", "user": "user-3"}' % (n * n + 7) for n in range(40)]
    return [New(b"user-3", value, (), 1_795_420_800_000 + n) for n, value in enumerate(values)]


def commands(page: str) -> Iterator[str]:
    """Yield the command lines of a page; a worker drains here, and nobody follows."""
    for line in typed(ROOT / page):
        if line.startswith("seqmark "):
            drains = " --drain" if line.startswith("seqmark worker") and "--drain" not in line else ""
            yield line.replace("--follow", "") + drains


def test_the_commands_of_the_pages_on_sequences_proofs_resets_and_reading_run(place: Place) -> None:
    (config,) = [text for kind, text in blocks("docs/sequences.md") if kind == "toml" and '"clicks"' in text]
    named = (config + EVENTS).replace('name = "clicks"', "name = 'clicks'")
    (place.folder / "my.toml").write_text(place.here(named))
    source = place.here("clicks.events.raw")
    create_topic(place.bootstrap, source, 3)
    for partition in range(3):
        produce(place.bootstrap, source, events(), partition=partition)
    ran = 0
    for page in (*GUIDES, "commands/read.md", "commands/explain-all.md"):
        for line in commands(f"docs/{page}"):
            place.run(line.replace(" events.", " clicks.events."))
            ran += 1
    assert ran >= 19


def test_the_commands_of_the_page_on_init_and_of_the_readme_run(place: Place) -> None:
    create_topic(place.bootstrap, place.here("clicks.raw"))
    produce(place.bootstrap, place.here("clicks.raw"), events())
    ran = 0
    for line in (
        *commands("docs/commands/init.md"),
        *commands("docs/commands/audit.md"),
        *commands("README.md"),
    ):
        if line.startswith("seqmark init"):
            (place.folder / "my.toml").unlink(missing_ok=True)
        place.run(line.replace("broker:9093", "localhost:9092"))
        ran += 1
    assert ran >= 9


def test_the_commands_of_the_example_of_clicks_run(place: Place) -> None:
    example = ROOT / "examples" / "clicks.toml"
    lines = typed(example)
    (place.folder / "examples").mkdir()
    (place.folder / "examples" / f"{place.name}.toml").write_text(place.here(example.read_text()))
    create_topic(place.bootstrap, place.here("clicks.raw"))

    said = [place.run(line + (" --drain" if " worker " in line else "")) for line in lines]

    assert [line.split()[1] for line in lines] == ["check", "worker"]
    assert "the config and its topics are right" in said[0][1]


def test_the_commands_of_the_page_on_simulate_run(place: Place) -> None:
    (place.folder / "my.toml").write_text(place.here(CLICKS))
    create_topic(place.bootstrap, place.here("clicks.raw"))
    produce(place.bootstrap, place.here("clicks.raw"), events())
    printed = [place.run(line)[0] for line in commands("docs/commands/simulate.md")]
    shown = next(text for kind, text in blocks("docs/commands/simulate.md") if "recommended:" in text)
    assert len(printed) == 5
    for line in re.findall(r"^(?:┃.*|what a window.*|share of.*|recommended:)$", shown, re.MULTILINE):
        assert line.replace(" ", "") in printed[0].replace(" ", "")
    assert (place.folder / "simulation.html").exists()


def shape(text: str) -> set[str]:
    """Return the lines without what differs from run to run: digits, ids, times, and how wide a table is."""
    lines = [re.sub(r"[0-9a-f-]*[0-9][0-9a-f,.:TZ-]*", "0", line) for line in text.splitlines()]
    return {" ".join(line.split()) for line in lines if not re.match("[┏┡└├]", line)}
