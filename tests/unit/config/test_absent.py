"""A topic that nobody writes is told with the one that was meant, or with who would write it."""

from __future__ import annotations

from typing import Any

from schemas.config import Pipeline
from schemas.config.absent import absent_topic


def pipeline(name: str) -> Pipeline:
    dedup: dict[str, Any] = {"mode": "watermark", "sequence": {"from": "header", "name": "seq"}}
    topics = {"source": f"{name}.raw", "sink": f"{name}.clean", "duplicates": f"{name}.duplicates"}
    return Pipeline.model_validate({"name": name, **topics, "dedup": dedup})


CLICKS, ORDERS = pipeline("clicks"), pipeline("orders")


def test_the_pipeline_that_would_write_it_is_named() -> None:
    for topic in ("orders.clean", "orders.duplicates"):
        told = absent_topic(topic, [CLICKS, ORDERS], [])
        assert f"{topic} does not exist: pipeline orders writes it" in told
        assert "`seqmark topics`" in told


def test_clean_topics_and_those_that_exist_are_suggested_by_their_names() -> None:
    told = absent_topic("click.clean", [CLICKS, ORDERS], ["click.cleaned", "else"])
    assert "no pipeline of this config writes it" in told
    assert "clicks.clean (the clean topic of pipeline clicks)" in told
    assert "click.cleaned" in told
    assert "else" not in told


def test_where_none_is_alike_the_clean_topics_are_listed_as_far_as_they_fit() -> None:
    many = [pipeline(f"p{number}") for number in range(9)]
    assert "clean topics of this config: clicks.clean, orders.clean" in absent_topic("x", [CLICKS, ORDERS], [])
    assert absent_topic("x", many, []).endswith("p4.clean, …")
    assert "no pipeline" in absent_topic("x", [], ["y"])
