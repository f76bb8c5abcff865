"""Names of the programs grow in the wheel wherever they are names, and nothing else changes."""

from __future__ import annotations

import ast

import pytest

from packing.hook import PackingError, packed, rewritten
from tests.support.suite.installed import ROOT

CHILDREN = {
    "processor": frozenset({"paths", "errors", "commands"}),
    "schemas": frozenset({"event", "events"}),
    "spark_sink": frozenset({"job"}),
}


@pytest.mark.parametrize(
    ("tree", "wheel"),
    [
        ("from processor.paths import x", "from seqmark.processor.paths import x"),
        ("from processor import paths, errors", "from seqmark.processor import paths, errors"),
        ("def f():\n    from schemas.events import A", "def f():\n    from seqmark.schemas.events import A"),
        ("import spark_sink.job as j, sys", "import seqmark.spark_sink.job as j, sys"),
        ("from processors.paths import x", "from processors.paths import x"),
        ("from .paths import x", "from .paths import x"),
        ('log = {"processor.paths": 1}', 'log = {"seqmark.processor.paths": 1}'),
        ('logging.getLogger("processor")', 'logging.getLogger("seqmark.processor")'),
        ('i(f"processor.commands.{a}")', 'i(f"seqmark.processor.commands.{a}")'),
        ("# as in `processor.paths`", "# as in `seqmark.processor.paths`"),
        ('e = "schemas.events:ClickEvent"', 'e = "schemas.events:ClickEvent"'),
        ('e = "schemas.my:Model"', 'e = "schemas.my:Model"'),
        ('"ask the processor. Paths"', '"ask the processor. Paths"'),
        ('"schemas/event/model.py"', '"schemas/event/model.py"'),
        ("schemas = []; schemas.append(1)", "schemas = []; schemas.append(1)"),
    ],
)
def test_a_name_grows_and_what_only_looks_like_one_stays(tree: str, wheel: str) -> None:
    assert rewritten(tree, CHILDREN) == wheel


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\nimport processor.paths", "2: import processor.paths binds its first name"),
        ('run("-m", "processor")', '1: in the wheel there is no "processor"'),
        ("x = schemas.event", "1: schemas.event looks like a module"),
        ("from \\\n processor.paths import x", "1: an import that is spread over lines"),
    ],
)
def test_what_would_mean_something_else_is_refused_with_its_line(source: str, said: str) -> None:
    with pytest.raises(PackingError, match=said):
        rewritten(source, CHILDREN)


def test_the_rewritten_tree_has_the_same_lines_and_only_longer_names() -> None:
    files = dict(packed(ROOT))

    assert {
        "__init__.py",
        "py.typed",
        "processor/broker/guard.py",
        "schemas/events.py",
        "spark_sink/job.py",
    } <= files.keys()
    for path, content in files.items():
        if path.endswith(".py"):
            own = (ROOT / path if path.split("/")[0] in CHILDREN else ROOT / "seqmark" / path).read_text()
            text = content.decode()
            assert text.count("\n") == own.count("\n"), path
            assert text.replace("seqmark.", "") == own.replace("seqmark.", ""), path
            ast.parse(text)
