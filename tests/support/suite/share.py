"""Which files of a run's tests are worth their time, and what each run proves.

`tests/proofs.json` has for each file that passed: a digest over all that decides how its tests end, the day,
what they took, and whether nothing of it was left out. A run with ``--tier ci`` takes of the long tests the
files whose digest is another, those first that were proven longest ago, as many as fit into ``--budget-s``;
and always a tenth by chance, since the digest misses what is not imported (pages, charts, other versions of
what is installed). ``--tier all`` takes every file that is not proven whole, so that a run that was ended
goes on where it was.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import random
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.support.suite import closure, extent, tiers
from tests.support.suite.closure import ROOT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from xdist.workermanage import WorkerController  # type: ignore[import-untyped] # it types its hooks only

PROOFS = ROOT / "tests" / "proofs.json"
UNKNOWN_S = 60.0
"""What a file is taken to need that nobody has seen pass."""
_CHOSEN = pytest.StashKey[frozenset[str]]()


@dataclass(frozen=True)
class Proof:
    """That the tests of a file have passed.

    Attributes:
        digest: Of what decides how they end.
        day: When, as ISO 8601 has it.
        seconds: That a process was busy with them.
        whole: Nothing was left out, no kill of a matrix and no long form.
    """

    digest: str
    day: str
    seconds: float
    whole: bool


def read(path: Path = PROOFS) -> dict[str, Proof]:
    """Return what is proven, by file."""
    return {file: Proof(**each) for file, each in json.loads(path.read_text()).items()} if path.exists() else {}


def write(proofs: Mapping[str, Proof], path: Path = PROOFS) -> None:
    """Keep what is proven of the files that there are."""
    kept = [(file, asdict(proof)) for file, proof in sorted(proofs.items()) if (ROOT / file).exists()]
    new = path.with_suffix(".new")
    new.write_text("{\n" + ",\n".join(f'"{file}": {json.dumps(proof)}' for file, proof in kept) + "\n}\n")
    new.replace(path)


def digest(file: str) -> str:
    """Return what decides how the tests of a file end.

    Its imports, direct or not, and the lock of what is installed; a test that needs more than itself starts
    workers and commands, which import what they do by name: all of the program decides.
    """
    files = {"requirements.lock", "tests/conftest.py", *closure.imported(ROOT, file)}
    if tiers.of_folder(file) != tiers.FAST:
        files.update(_program())
    return closure.digest(ROOT, files)[:16]


@cache
def _program() -> frozenset[str]:
    return frozenset(
        str(each.relative_to(ROOT)) for top in ("processor", "schemas") for each in (ROOT / top).rglob("*.py")
    )


def choose(
    files: Mapping[str, str], proofs: Mapping[str, Proof], budget_s: float, dice: random.Random
) -> frozenset[str]:
    """Return the files to run: a tenth by chance, and what is not proven within the budget, the oldest first.

    Args:
        files: Digests by name.
        proofs: What is proven.
        budget_s: Seconds of a process.
        dice: Decide.
    """

    def seconds(file: str) -> float:
        return proofs[file].seconds if file in proofs else UNKNOWN_S

    chosen = set(dice.sample(sorted(files), math.ceil(len(files) / 10)))
    left_s = budget_s - sum(map(seconds, chosen))
    unproven = [file for file in files if file not in proofs or proofs[file].digest != files[file]]
    dice.shuffle(unproven)
    for file in sorted(unproven, key=lambda each: proofs[each].day if each in proofs else ""):
        if file not in chosen and seconds(file) <= left_s:
            chosen.add(file)
            left_s -= seconds(file)
    return frozenset(chosen)


def add_options(parser: pytest.Parser) -> None:
    """Declare ``--tier`` and ``--budget-s``."""
    parser.addoption("--tier", choices=tuple(tiers.RUNS), help="run the tests of a tier: tests/README.md")
    parser.addoption(
        "--budget-s",
        type=float,
        default=math.inf,
        help="with --tier ci: how many seconds of a process the long tests may need",
    )


def takes(config: pytest.Config, file: str, tier: str) -> bool:
    """Say whether this run takes the tests of a tier in a file; the same in each process."""
    run: str | None = config.getoption("tier")
    if run is None:
        return True
    if tier not in tiers.RUNS[run]:
        return False
    return run == tiers.FAST or (run == tiers.CI and tier == tiers.CORE) or file in chosen(config)


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what is of another tier, or in a file that was not chosen."""
    if config.getoption("tier") is not None:
        places = [(item, item.nodeid.partition("::")[0]) for item in items]
        extent.keep(config, items, [item for item, file in places if takes(config, file, tiers.of_test(item))])


def chosen(config: pytest.Config) -> frozenset[str]:
    """Return the files that were chosen: of all of them, or of those with long tests."""
    if _CHOSEN not in config.stash:
        given: Collection[str] | None = getattr(config, "workerinput", {}).get("chosen")
        config.stash[_CHOSEN] = _choose(config) if given is None else frozenset(given)
    return config.stash[_CHOSEN]


def _choose(config: pytest.Config) -> frozenset[str]:
    run = config.getoption("tier")
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    some = {file: digest(file) for file in files if run == tiers.ALL or tiers.LONG in tiers.in_file(file)}
    proofs = read()
    if run == tiers.ALL:
        return frozenset(some) - {
            file for file, proof in proofs.items() if proof.whole and proof.digest == some.get(file)
        }
    taken = choose(some, proofs, config.getoption("budget_s"), random.Random(extent.seed(config)))
    proven = sum(file in proofs and proofs[file].digest == some[file] for file in some)
    said = f"{len(taken)} of {len(some)} files with long tests were chosen, {proven} are proven as they are"
    extent.note(config, f"{said}; SEQMARK_TEST_SEED={extent.seed(config)}")
    return taken


class Prover:
    """Notes in `PROOFS` each file whose tests have all passed, as soon as they have; a plugin of one process.

    Args:
        config: Of the run.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._whole = extent.everything(config)
        self._ahead = Counter[str]()
        self._seconds = Counter[str]()
        self._failed: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Take over what one process runs by itself."""
        self._expect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: WorkerController, ids: list[str]) -> None:
        """Take over what several run: each has collected the same."""
        del node
        self._expect(ids)

    def _expect(self, ids: list[str]) -> None:
        if not self._ahead:
            self._ahead.update(each.partition("::")[0] for each in ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test, and write the proof with the last of its file."""
        file = report.nodeid.partition("::")[0]
        self._seconds[file] += report.duration  # type: ignore[assignment] # a counter of seconds
        if report.failed:
            self._failed.add(file)
        if report.when == "teardown":
            self._ahead[file] -= 1
            if not self._ahead[file] and file not in self._failed:
                day = dt.datetime.now(dt.UTC).date().isoformat()
                proof = Proof(digest(file), day, round(float(self._seconds[file]), 1), self._whole)
                with contextlib.suppress(OSError):  # a tree that can only be read
                    write({**read(), file: proof})
