"""Orders pipelines by what feeds what."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.config import Pipeline


def feeders_first(pipelines: Sequence[Pipeline]) -> list[Pipeline]:
    """Order pipelines so that one whose source is another's sink comes after it; there are no loops."""
    feeds = {pipeline.sink: pipeline for pipeline in pipelines}
    ordered: dict[str, Pipeline] = {}
    for pipeline in pipelines:
        chain = [pipeline]
        while (above := feeds.get(chain[-1].source)) is not None:
            chain.append(above)
        ordered.update({each.name: each for each in reversed(chain) if each.name not in ordered})
    return list(ordered.values())
