"""What README.md and docs/quickstart.md show is what the programs print, from an empty folder on."""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.support.kafka.topics import New, create_topic, produce, unique
from tests.support.worker import forks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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


def shape(text: str) -> set[str]:
    """Return the lines without what differs from run to run: digits, ids, times, and how wide a table is."""
    lines = [re.sub(r"[0-9a-f-]*[0-9][0-9a-f,.:TZ-]*", "0", line) for line in text.splitlines()]
    return {" ".join(line.split()) for line in lines if not re.match("[┏┡└├]", line)}
