"""Says how the job of aggregates runs, and who hears of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_sink.query.progress import Totals


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How the job runs.

    Attributes:
        master: Where Spark runs.
        memory: The driver's heap.
        available_now: Stop when all that is there at the start is done.
        accept_loss: Go on where retention has removed what was not read yet, or the topic was created again.
        metrics_host: Address that the metrics are served on.
        metrics_port: 0: none.
        conf: Spark settings beside or instead of ours.
    """

    master: str = "local[*]"
    memory: str = "1g"
    available_now: bool = False
    accept_loss: bool = False
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    conf: Mapping[str, str] = field(default_factory=dict)


class Audience(Protocol):
    """Hears what happens to a query."""

    def say(self, text: str) -> None:
        """Tell of a step."""
        ...

    def warn(self, text: str) -> None:
        """Tell of what is most likely wrong, though it stops nothing."""
        ...

    def progress(self, totals: Mapping[str, Totals]) -> None:
        """Show how far the aggregates are; called after each batch, from Spark's threads, and now and then."""
        ...
