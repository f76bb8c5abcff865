"""Reads the metrics and labels that a PromQL query asks for; knows the part of the language in use here.

It knows words, not grammar: brackets must balance, a word before a bracket must be a function that Prometheus
has, labels stand in selectors or after `by` and its kind, and what is left is a metric. Grafana's variables
(`$pipeline`, `$__rate_interval`) are put to values before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Those in use; Prometheus has more: https://prometheus.io/docs/prometheus/latest/querying/functions/
FUNCTIONS = {"rate", "increase", "deriv", "histogram_quantile", "time", "absent"}
AGGREGATIONS = {"sum", "min", "max", "avg", "count", "topk"}
_CLAUSES = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_OPERATORS = {"and", "or", "unless", "bool", "offset"}
_TOKEN = re.compile(
    r"""\s+
    | (?P<text>"(?:[^"\\]|\\.)*")
    | (?P<range>\[\d+[smhdw](?::\d*[smhdw]?)?\])
    | (?P<word>[a-zA-Z_:][a-zA-Z0-9_:]*)
    | (?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)
    | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){},])
    """,
    re.VERBOSE,
)
_CLOSES = {"(": ")", "{": "}"}


@dataclass(frozen=True)
class Asked:
    """What a query asks for.

    Attributes:
        selectors: Metric, and the labels with their values that it is narrowed by.
        grouped: Labels of ``by`` and its kind, which the metrics must have.
    """

    selectors: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    grouped: set[str] = field(default_factory=set)


def read(query: str) -> Asked:
    """Read a query.

    Raises:
        ValueError: It is none, or uses what this reader does not know.
    """
    tokens = _tokens(re.sub(r"\$\{?__(?:rate_interval|range|interval)\}?", "5m", query))
    asked, open_, at = Asked(), list[str](), 0
    while at < len(tokens):
        token = tokens[at]
        after = tokens[at + 1] if at + 1 < len(tokens) else ""
        at += 1
        if token in _CLOSES:
            open_.append(_CLOSES[token])
        elif token in {")", "}"}:
            if not open_ or open_.pop() != token:
                raise ValueError(f"{token} closes nothing in {query}")
        elif token in _CLAUSES:
            end = tokens.index(")", at)
            asked.grouped.update(each for each in tokens[at + 1 : end] if each != ",")
            at = end + 1
        elif re.match(r"[a-zA-Z_:]", token) and token not in _OPERATORS:
            if after == "(" or (after in _CLAUSES and token in AGGREGATIONS):
                if token not in FUNCTIONS | AGGREGATIONS:
                    raise ValueError(f"{token} is no function that is known here, in {query}")
                continue
            labels, at = _matchers(tokens, at) if after == "{" else ({}, at)
            asked.selectors.append((token, labels))
    if open_:
        raise ValueError(f"{open_[-1]} is missing in {query}")
    return asked


def _tokens(query: str) -> list[str]:
    tokens, at = [], 0
    while at < len(query):
        match = _TOKEN.match(query, at)
        if match is None:
            raise ValueError(f"cannot be read from {query[at:]!r} on")
        if match.lastgroup:
            tokens.append(match[0])
        at = match.end()
    return tokens


def _matchers(tokens: list[str], at: int) -> tuple[dict[str, str], int]:
    end = tokens.index("}", at)
    inside = tokens[at + 1 : end]
    labels = {}
    for place in range(0, len(inside), 4):
        name, sign, value = inside[place : place + 3]
        if sign not in {"=", "!=", "=~", "!~"}:
            raise ValueError(f"{name} {sign} {value} is no matcher")
        labels[name] = value.strip('"')
    return labels, end + 1
