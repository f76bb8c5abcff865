"""Each mistake is answered with its place, what was given, what would be right and what to do, to the word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from processor.config.load import load, located
from processor.errors import ConfigError, Problem

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """\
[kafka]
bootstrap_servers = "localhost:9092"

[worker]
application_id = "shop"

"""
ORDERS = """\
[[pipelines]]
name = "orders"
source = "orders.raw"
sink = "orders.clean"

[pipelines.dedup]
mode = "insert-id"
id = [{ from = "value", pointer = "/id" }]
window = "7d"

"""
CLICKS = """\
[[pipelines]]
name = "clicks"
source = "clicks.raw"
sink = "clicks.clean"

[pipelines.dedup]
mode = "watermark"
sequence = { from = "header", name = "seq" }
"""
RIGHT = HEAD + ORDERS + CLICKS


def said(tmp_path: Path, text: str, **environ: str) -> str:
    path = tmp_path / "my.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path, environ)
    return "\n".join(str(problem).replace(str(path), "my.toml") for problem in caught.value.problems)


def with_line(old: str, new: str) -> str:
    assert RIGHT.count(old) == 1
    return RIGHT.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "answers"),
    [
        pytest.param(
            'bootstrap_servers = "localhost:9092"',
            'bootstrap_servers = "localhost:9092"\nsecurity_protocol = "SASL_SSL"\nsasl_plain_username = "u"\n'
            'sasl_password = "hunter2"',
            "my.toml:5: kafka.sasl_password: is not a known key; did you mean sasl_plain_password?",
            id="a password by Kafka's other clients' name",
        ),
        pytest.param(
            '"localhost:9092"',
            '"${KAFKA}"',
            (
                "my.toml:2: kafka.bootstrap_servers: has a variable in it, and Seqmark does not expand "
                "variables: leave the key out, and set the environment variable that overrides it: "
                'SEQMARK_KAFKA__BOOTSTRAP_SERVERS; given: "${KAFKA}"'
            ),
            id="a variable for an address",
        ),
        pytest.param(
            '"localhost:9092"',
            '"$HOST:9092"',
            (
                "my.toml:2: kafka.bootstrap_servers: has a variable in it, and Seqmark does not expand "
                "variables: leave the key out, and set the environment variable that overrides it: "
                'SEQMARK_KAFKA__BOOTSTRAP_SERVERS; given: "$HOST:9092"'
            ),
            id="a variable in an address that would pass as one",
        ),
        pytest.param(
            'application_id = "shop"',
            'application_id = "shop"\nstate_dir = "${HOME}/state"',
            (
                "my.toml:6: worker.state_dir: has a variable in it, and Seqmark does not expand "
                "variables: leave the key out, and set the environment variable that overrides it: "
                'SEQMARK_WORKER__STATE_DIR; given: "${HOME}/state"'
            ),
            id="a variable in a folder",
        ),
        pytest.param(
            'application_id = "shop"',
            'application_id = "shop"\nguarantee = "exactly-once"',
            (
                'my.toml:6: worker.guarantee: must be "exactly_once" or "at_least_once"; did you mean '
                '"exactly_once"?; given: "exactly-once"'
            ),
            id="a wrong word",
        ),
        pytest.param(
            'window = "7d"',
            'window = "7d"\njson = "lenent"\nframing = "avro"',
            (
                'orders (my.toml:16): pipelines.orders.dedup.json: must be "strict" or "lenient"; did you mean '
                '"lenient"?; given: "lenent"\n'
                'orders (my.toml:17): pipelines.orders.dedup.framing: must be "auto", "none" or "registry"; '
                'given: "avro"'
            ),
            id="how values are read",
        ),
        pytest.param(
            'application_id = "shop"',
            'application_id = "shop"\nslots = 0',
            "my.toml:6: worker.slots: must be at least 1; given: 0",
            id="a number out of its bounds",
        ),
        pytest.param(
            'application_id = "shop"',
            'application_id = "shop"\nslots = "four"',
            'my.toml:6: worker.slots: must be a whole number; given: "four"',
            id="a word for a number",
        ),
        pytest.param(
            'application_id = "shop"',
            'application_id = "shop"\nstate_dir = ["a"]',
            "my.toml:6: worker.state_dir: must be a string: a path; given: a list",
            id="a list for a text",
        ),
        pytest.param(
            '[{ from = "value", pointer = "/id" }]',
            '"/insert_id"',
            (
                "orders (my.toml:14): pipelines.orders.dedup.id: must be a list: write id = [{ from = "
                '"value", pointer = "/insert_id" }]'
            ),
            id="a pointer for an id",
        ),
        pytest.param(
            '[{ from = "value", pointer = "/id" }]',
            '["/insert_id"]',
            (
                "orders (my.toml:14): pipelines.orders.dedup.id.0: must be a table: write { from = "
                '"value", pointer = "/insert_id" }'
            ),
            id="a list of pointers for an id",
        ),
        pytest.param(
            '[{ from = "value", pointer = "/id" }]',
            '{ from = "value", pointer = "/id" }',
            (
                "orders (my.toml:14): pipelines.orders.dedup.id: must be a list: write id = [{ ... }], "
                "with brackets around it; given: a table"
            ),
            id="one part for an id",
        ),
        pytest.param(
            '[{ from = "value", pointer = "/id" }]',
            '[{ pointer = "/id" }]',
            (
                'orders (my.toml:14): pipelines.orders.dedup.id.0.from: is missing: "header" or "key" '
                'or "value" or "column" or "text" or "content" or "any", it says which keys belong here; '
                'those that are here belong to "value"'
            ),
            id="a part that does not say from where",
        ),
        pytest.param(
            '[{ from = "value", pointer = "/id" }]',
            '[{ from = "header", pointer = "/id", name = "id" }]',
            (
                'orders (my.toml:14): pipelines.orders.dedup.id.0.pointer: belongs to from = "value", '
                'and here from is "header": take it out, or change from'
            ),
            id="a pointer into a header",
        ),
        pytest.param(
            '{ from = "header", name = "seq" }',
            '"seq"',
            (
                "clicks (my.toml:24): pipelines.clicks.dedup.sequence: must be a table: write sequence "
                '= { from = "header", name = "seq" }'
            ),
            id="a name for a sequence",
        ),
        pytest.param(
            'window = "7d"',
            'window = "7d"\nsequence = { from = "header", name = "seq" }',
            (
                'orders (my.toml:16): pipelines.orders.dedup.sequence: belongs to mode = "watermark", '
                'and here mode is "insert-id": take it out, or change mode'
            ),
            id="a key of the other mode",
        ),
        pytest.param(
            'mode = "watermark"',
            'mode = "watermark"\nwindow = "1d"',
            (
                'clicks (my.toml:24): pipelines.clicks.dedup.window: belongs to mode = "insert-id", '
                'and here mode is "watermark": take it out, or change mode'
            ),
            id="a key of the first mode",
        ),
        pytest.param(
            'mode = "watermark"',
            'mode = "water-mark"',
            (
                'clicks (my.toml:23): pipelines.clicks.dedup.mode: must be one of "watermark", '
                '"insert-id"; did you mean "watermark"?; given: "water-mark"'
            ),
            id="a misspelt mode",
        ),
        pytest.param(
            'mode = "watermark"\n',
            "",
            (
                'clicks (my.toml:22): pipelines.clicks.dedup.mode: is missing: "watermark" or '
                '"insert-id", it says which keys belong here; those that are here belong to "watermark"'
            ),
            id="no mode",
        ),
        pytest.param(
            "[worker]\n",
            "[workers]\n",
            "my.toml:4: workers: is not a known key; did you mean worker? Write [worker]",
            id="a table in the plural",
        ),
        pytest.param(
            '[worker]\napplication_id = "shop"',
            '[workers]\napplication_id = "shop"\nslots = 0',
            (
                "my.toml:4: workers: is not a known key; did you mean worker? Write [worker]\n"
                "my.toml:6: workers.slots: must be at least 1; given: 0"
            ),
            id="a mistake in a table in the plural",
        ),
        pytest.param(
            'source = "orders.raw"',
            'sorce = "orders.raw"',
            "orders (my.toml:9): pipelines.orders.sorce: is not a known key; did you mean source?",
            id="a misspelt key that is needed",
        ),
        pytest.param(
            'sink = "orders.clean"',
            'sink = "orders.raw"',
            (
                "orders (my.toml:10): pipelines.orders.sink: must not be the same topic as "
                'pipelines.orders.source; given: "orders.raw"'
            ),
            id="a topic of two roles",
        ),
        pytest.param(
            'name = "orders"\n',
            "",
            ("my.toml:7: pipelines.0.name: is missing: Its name, in internal topics, metrics and receipts."),
            id="a pipeline without a name goes by its number",
        ),
        pytest.param(
            'name = "orders"',
            'name = "clicks"',
            (
                "my.toml:18: pipelines.1.name: is the same as pipelines.0.name; each needs its own; "
                'given: "clicks"'
            ),
            id="pipelines of one name go by their numbers",
        ),
    ],
)
def test_a_mistake_is_answered(tmp_path: Path, old: str, new: str, answers: str) -> None:
    assert said(tmp_path, with_line(old, new)) == answers


def test_a_table_for_a_list_of_tables_is_one_mistake_and_is_read_on(tmp_path: Path) -> None:
    text = HEAD + ORDERS.replace("[[pipelines]]", "[pipeline]").replace("[pipelines.dedup]", "[pipeline.dedup]")
    assert said(tmp_path, text.replace('"7d"', "7")) == (
        "my.toml:7: pipeline: is not a known key; did you mean pipelines? Write [[pipelines]]\n"
        "orders (my.toml:15): pipeline.orders.dedup.window: must be a whole number and a unit: s, "
        'm, h or d, such as "90s" or "7d", or a word, such as "1 hour" or "30 minutes"; given: 7'
    )


def test_what_a_variable_gave_is_named_by_the_variable(tmp_path: Path) -> None:
    variables = {"SEQMARK_PIPELINES__0__DEDUP__WINDOW": "1y", "SEQMARK_WORKER__STATE_DIR": "$HOME/state"}
    assert said(tmp_path, RIGHT, **variables) == (
        "environment variable SEQMARK_WORKER__STATE_DIR: worker.state_dir: has a variable in it, and "
        "Seqmark does not expand variables: the environment variable has to hold the value itself; "
        'given: "$HOME/state"\n'
        "orders (environment variable SEQMARK_PIPELINES__0__DEDUP__WINDOW): "
        'pipelines.orders.dedup.window: must be a whole number and a unit: s, m, h or d, such as "90s" or '
        '"7d", or a word, such as "1 hour" or "30 minutes"; given: "1y"'
    )


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("slots = = 4", "is not valid TOML in line 6, column 9: Invalid value"),
        (
            "guarantee = exactly_once",
            'is not valid TOML in line 6, column 13: Invalid value; a text stands in quotes: key = "text"',
        ),
        (
            'web_host = "localhost',
            (
                "is not valid TOML in line 6, column 22: Illegal character '\\n'; "
                "a quote is not closed in this line"
            ),
        ),
        ("[worker]", "is not valid TOML in line 6, column 8: Cannot declare ('worker',) twice"),
    ],
)
def test_a_line_that_is_no_toml_is_shown_with_a_caret(tmp_path: Path, line: str, answer: str) -> None:
    shown = said(tmp_path, with_line('application_id = "shop"', f'application_id = "shop"\n{line}'))
    column = int(answer.partition("column ")[2].partition(":")[0])
    assert shown == f"my.toml:6: {answer}\n    {line}\n    {'^':>{column}}"


def test_what_is_not_closed_at_all_has_no_line(tmp_path: Path) -> None:
    assert said(tmp_path, RIGHT + "a = [1,") == (
        "my.toml: is not valid TOML: Invalid value, at the end: something is not closed, such as a quote or "
        "a bracket"
    )


def test_what_is_found_later_has_its_place_too(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(RIGHT)
    later = [
        Problem("pipelines.1.dedup.sequence", "leads into pipelines.0.sink"),
        Problem("pipelines.clicks.dedup", "differs"),
        Problem("orders.raw", "does not exist"),
        Problem("--pipeline", "there is no pipeline"),
    ]
    assert "\n".join(str(each).replace(str(path), "my.toml") for each in located(later, path, {})) == (
        "clicks (my.toml:24): pipelines.clicks.dedup.sequence: leads into pipelines.orders.sink\n"
        "clicks (my.toml:22): pipelines.clicks.dedup: differs\n"
        "orders.raw: does not exist\n"
        "--pipeline: there is no pipeline"
    )
    assert located(later, tmp_path / "gone.toml", {}) == later


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (r'"\u001b[31m[bold]evil\u202e"', r'worker."\u001b[31m[bold]evil\u202e"'),
        ('""', 'worker.""'),
        ('"a.b"', 'worker."a.b"'),
        ('"a b"', 'worker."a b"'),
        ('"kafka://bob:hunter2@host"', "worker.(a key that may hold a secret)"),
    ],
)
def test_a_key_that_is_not_bare_is_quoted_and_hidden_if_it_may_be_secret(
    tmp_path: Path, key: str, shown: str
) -> None:
    answer = said(tmp_path, with_line('application_id = "shop"', f'application_id = "shop"\n{key} = 1'))
    assert answer.startswith(f"my.toml:6: {shown}: is not a known key")
    assert "hunter2" not in answer
