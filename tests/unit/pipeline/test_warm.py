"""After the warm-up no kernel compiles when the work of a mode begins, in a process of its own."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
from typing import Any, get_args

import pytest
from numba.core.dispatcher import Dispatcher

import processor.engine
from processor.judges.factory import MODES
from processor.pipeline import warm as warm_up
from processor.pipeline.warm import warm
from schemas.config import Dedup, InsertIdDedup
from tests.unit.schemas import test_golden_bytes as golden

KINDS = get_args(Dedup)


def kernels() -> dict[str, int]:
    """Return of each kernel for how many kinds of arguments it is compiled, or loaded from the cache."""
    found: dict[str, int] = {}
    for module in pkgutil.walk_packages(processor.engine.__path__, "processor.engine."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Dispatcher):
                found[f"{value.py_func.__module__}.{value.py_func.__name__}"] = len(value.signatures)
    return found


def compiled_by_work(warmed: str, worked: str) -> list[str]:
    """Warm one mode up, then do the work of another; return the kernels that were compiled for it."""
    warm([warmed])
    before = kernels()
    for hop in golden.HOPS.values():
        if hop.pipeline.dedup.mode == worked and hop.upstream is None:
            golden.run(hop)
    return [name for name, count in kernels().items() if count > before[name]]


def say(warmed: str, worked: str) -> None:
    """Print `compiled_by_work`, for the process that asks."""
    sys.stdout.write(json.dumps(compiled_by_work(warmed, worked)))


def in_a_process(warmed: str, worked: str) -> list[str]:
    program = f"import {__name__} as test; test.say({warmed!r}, {worked!r})"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return list(json.loads(done.stdout))


@pytest.mark.parametrize("mode", MODES)
def test_the_work_of_a_mode_compiles_nothing_once_it_is_warm(mode: str) -> None:
    assert in_a_process(mode, mode) == []


def test_the_work_of_a_mode_that_is_not_warm_is_noticed() -> None:
    assert "processor.engine.ids.clock._by_records" in in_a_process("watermark", "insert-id")


def test_every_mode_backend_and_scope_that_a_config_can_have_is_warmed() -> None:
    assert set(MODES) == {mode for kind in KINDS for mode in get_args(kind.model_fields["mode"].annotation)}
    ids = MODES["insert-id"].examples
    backends = get_args(InsertIdDedup.model_fields["backend"].annotation)
    assert {each.get("backend", "exact") for each in ids} == set(backends)
    assert "by-id" in {each.get("route") for each in ids}
    assert any("fingerprint" in each for each in ids)
    assert {"tag", "rename"} <= {each.get("on_collision") for each in ids}
    parts = [part for each in ids for part in each["id"]]
    plain = [below for part in parts for below in part.get("any", [part])]
    assert {part["from"] for part in plain} == {"header", "key", "value", "content", "column", "text"}
    assert {part.get("of", "value") for part in plain if part["from"] == "content"} == {"value", "bytes"}
    assert any("normalise" in part for part in plain)
    assert any("|/" in part.get("pointer", "") for part in plain)
    scopes = [each.get("scope", "partition") for each in MODES["watermark"].examples]
    assert any(isinstance(each, list) and "|/" in "".join(each) for each in scopes)
    assert {each.partition(":")[0] for each in scopes if isinstance(each, str)} == {
        "partition",
        "key",
        "header",
    }


def test_where_nothing_is_compiled_nothing_is_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(_: object) -> None:
        raise AssertionError("in plain Python it takes a minute")

    monkeypatch.setattr(warm_up, "COMPILES", False)
    monkeypatch.setattr(warm_up, "_WARM", set())
    monkeypatch.setattr(warm_up, "_work", work)
    warm_up.warm()


def test_a_process_warms_a_mode_up_once_and_again_if_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[list[dict[str, Any]]] = []
    broken = [MemoryError()]

    async def work(dedups: list[dict[str, Any]], _progress: object) -> None:
        if broken:
            raise broken.pop()
        done.append(dedups)

    monkeypatch.setattr(warm_up, "_WARM", set())
    monkeypatch.setattr(warm_up, "_work", work)
    with pytest.raises(MemoryError):
        warm(["watermark"])
    warm(["watermark"])
    warm()
    warm()
    assert done == [list(MODES["watermark"].examples), list(MODES["insert-id"].examples)]
