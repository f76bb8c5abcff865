"""The tree keeps the rules of the house, and each rule can fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.tree.house import ALLOWED, BUDGETS, LINES, LONG, ROOT, RULES, House, problems, table

if TYPE_CHECKING:
    from pathlib import Path

STATEMENT = '"""Says what it is."""\n'
GLOSSARY = "# A\n\n## Glossary\n| word | meaning |\n|---|---|\n| slot | a |\n| `hop` | b |\n\n## Next\n"
CONTRACTS = """
[[tool.importlinter.contracts]]
id = "layers"
layers = [{layers}]
[[tool.importlinter.contracts]]
id = "spark-is-apart"
forbidden_modules = [{forbidden}]
"""
# One tree keeps all rules. Each case changes files of it; the rule that is named finds that, and no other does.
TREE = {
    "processor/__init__.py": STATEMENT,
    "processor/errors.py": STATEMENT,
    "processor/judges/__init__.py": STATEMENT + "class Judge:\n    def judge(self): ...\n",
    "processor/engine/clock.py": STATEMENT
    + "from processor import errors\nfrom processor.judges import Judge\n",
    "spark_sink/job.py": STATEMENT + "import processor.errors\nclass SinkJob: ...\nclass _Row: ...\n",
    "docs/architecture.md": GLOSSARY,
    "pyproject.toml": CONTRACTS.format(layers='"a", "b"', forbidden='"processor.judges", "processor.engine"'),
}
MANY = {f"processor/engine/m{number}.py": STATEMENT for number in range(15)}
ASKS = STATEMENT + "def asks(a):\n    return isinstance(a, (int, InsertIdDedup))\n"
CASES = {
    "folder_width": [MANY, {f"{path}/a.md": "" for path in map("tests/unit/{}".format, range(21))}],
    "module_size": [{"schemas/long.py": STATEMENT + "\n" * LINES}],
    "room_budget": [{"tests/unit/long.py": STATEMENT + "\n" * BUDGETS["tests"]}],
    "import_cycles": [
        {"processor/judges/__init__.py": STATEMENT + "def later():\n    import processor.engine.clock\n"},
        {
            "processor/errors.py": STATEMENT
            + "if TYPE_CHECKING:\n    from processor.engine.clock import Clock\n"
        },
    ],
    "class_names": [
        {"schemas/job.py": STATEMENT + "class SinkJob: ...\n"},
        {f"schemas/{name}.py": STATEMENT + "".join(f"class _C{n}: ...\n" for n in range(9)) for name in "ab"},
    ],
    "gone_words": [
        {"processor/engine/gathered.py": STATEMENT},
        {"processor/errors.py": STATEMENT + "class _Made: ...\n"},
        {"processor/judges/ids.py": STATEMENT + "class IdLog:\n    async def expendable(self): ...\n"},
    ],
    "headlines": [
        {"processor/errors.py": '"""Which reaction does\na failure ask for?\n\nOne.\n"""\n'},
        {"processor/errors.py": '"""How? By reaction."""\n'},
        {"processor/errors.py": "import os\n"},
    ],
    "judged_by_kind": [
        {"processor/engine/clock.py": ASKS},
        {"processor/engine/clock.py": STATEMENT + "match a:\n    case judges.BloomIds():\n        pass\n"},
        {f"processor/judges/{name}.py": ASKS.replace("asks", name) for name in "abcdef"},
    ],
    "layers": [
        {"pyproject.toml": TREE["pyproject.toml"].replace('"a"', ", ".join(f'"a{n}"' for n in range(16)))}
    ],
    "spark_allow_list": [{"processor/wire/__init__.py": STATEMENT}],
    "engine_environment": [
        {"processor/engine/clock.py": STATEMENT + 'import os\nBITS = os.environ["SEQMARK_BITS"]\n'},
        {"processor/engine/clock.py": STATEMENT + 'from os import getenv\nBITS = getenv("SEQMARK_BITS")\n'},
    ],
    "glossary": [
        {"docs/architecture.md": GLOSSARY.replace("| slot", "| **Hop**")},
        {"docs/architecture.md": GLOSSARY.replace("| slot", "| tape")},
        {"docs/architecture.md": "# A\n\n## Glossary\n\nNone.\n"},
    ],
}


def built(root: Path, *layers: dict[str, str]) -> House:
    """Write a tree, later files over earlier ones, and return it."""
    for path, text in [item for files in layers for item in files.items()]:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return House(root)


def test_this_tree_keeps_the_rules() -> None:
    assert list(problems(House(ROOT))) == []


def test_a_tree_can_keep_them_all(tmp_path: Path) -> None:
    assert list(problems(built(tmp_path, TREE), {})) == []


def test_each_rule_has_a_case() -> None:
    assert [rule.__name__ for rule in RULES] == list(CASES)


@pytest.mark.parametrize(("rule", "files"), [(rule, files) for rule, each in CASES.items() for files in each])
def test_a_rule_finds_what_breaks_it_and_no_other_does(
    rule: str, files: dict[str, str], tmp_path: Path
) -> None:
    found = list(problems(built(tmp_path, TREE, files), {}))

    assert found
    assert all(problem.startswith(f"{rule}: ") for problem in found), found


def test_what_is_allowed_may_stay_and_has_to_go_from_the_list_with_the_code(tmp_path: Path) -> None:
    house = built(tmp_path, TREE, {"schemas/long.py": STATEMENT + "\n" * LINES})

    assert list(problems(house, {"module_size": {"schemas/long.py": 1}})) == []
    (problem,) = problems(house, {"module_size": {"schemas/long.py": 1, "schemas/gone.py": 1}})
    assert problem == "module_size: schemas/gone.py: ALLOWED has 1 and 0 are left: take the rest off"


def test_few_modules_may_be_allowed_to_be_long(tmp_path: Path) -> None:
    long = [f"schemas/long{number}.py" for number in range(LONG + 1)]
    house = built(tmp_path, TREE, dict.fromkeys(long, STATEMENT + "\n" * LINES))

    (problem,) = problems(house, {"module_size": dict.fromkeys(long, 1)})

    assert problem == f"module_size: ALLOWED names more than {LONG} modules"


def test_what_is_allowed_is_allowed_to_a_rule() -> None:
    assert ALLOWED.keys() <= {rule.__name__ for rule in RULES}


def test_the_table_counts_what_breaks_the_rules_too(tmp_path: Path) -> None:
    house = built(
        tmp_path, TREE, MANY, *CASES["judged_by_kind"], *CASES["import_cycles"], *CASES["class_names"]
    )

    numbers = dict(table(house))

    assert numbers["widest folder below it"] == "16 (`processor/engine`)"
    assert numbers["questions which kind a judge is"] == "7, 6 of them where judges are made"
    assert numbers["class names used in more than one module"] == "10, 9 of them private"
    assert numbers["layers in the import contract"] == "2"


def test_what_git_ignores_is_not_looked_at(tmp_path: Path) -> None:
    ignored = {f"processor/engine/__pycache__/m{number}.pyc": "" for number in range(20)}
    ignored |= {f"processor/made/m{number}.py": "" for number in range(20)}

    house = built(tmp_path, TREE, ignored, {".gitignore": "# made\n__pycache__/\n/processor/made/\n"})

    assert list(problems(house, {})) == []
