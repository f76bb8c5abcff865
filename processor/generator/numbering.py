"""Scope, epoch and sequence of each original of a partition, and which originals pass.

Invariant: in each scope epochs never fall from one original to the next, and within an epoch no sequence occurs
twice. So a copy, which stands behind its original, is a duplicate or late whatever lies between them, and only
an original that comes further behind than the reorder window does not pass. Where numbers wrap, or epochs have
no order, what lies between decides: then the records are judged one by one (`RecountRules`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A few scopes have most of the records, as with real keys; the rarest get about 1 / 3,000 of the commonest.
_SKEW = 8

# One record in 250 is the first after its producer's restart: some in each stream worth looking at.
_RESTART_SHARE = 0.004
_EPOCH_STEP_MOST = 3
_EPOCH_FIRST_MOST = 5

# One record in fifty skips up to 40 numbers, which the producer gave up. A count may begin below zero.
_GAP_SHARE = 0.02
_GAP_MOST = 40
_BEGIN_LEAST, _BEGIN_MOST = -500, 1_000

# One original in thirty is overtaken by some that were sent after it, one in 250 by more than the window takes.
_OVERTAKEN_SHARE = 0.03
_BEYOND_SHARE = 0.004
_BEYOND_MOST = 20


_REMEMBERED = 16
"""Epochs without order that a scope has left, and knows."""


@dataclass(frozen=True, slots=True)
class RecountRules:
    """Rules under which a copy may pass that comes late enough.

    Attributes:
        window: Numbers below the watermark that are remembered.
        wraps: Where numbers begin again; 0: nowhere.
        changes: Whether epochs have no order.
    """

    window: int
    wraps: int
    changes: bool


@dataclass(slots=True)
class _Scope:
    """Numbers are counted on where they wrap."""

    epoch: int
    mark: int
    seen: set[int]
    left: list[int] = field(default_factory=list)

    def passes(self, number: int, epoch: int, rules: RecountRules) -> bool:
        """Judge the next number."""
        if epoch != self.epoch:
            if epoch in self.left[-_REMEMBERED:] if rules.changes else epoch < self.epoch:
                return False
            self.left.append(self.epoch)
            self.epoch, self.mark, self.seen = epoch, number, {number}
            return True
        if rules.wraps:
            up = (number - self.mark) % rules.wraps
            number = self.mark + (up if 2 * up <= rules.wraps else up - rules.wraps)
        if number in self.seen or number < self.mark - rules.window:
            return False
        self.seen.add(number)
        self.mark = max(self.mark, number)
        return True


@dataclass(frozen=True, slots=True)
class Numbers:
    """Columns with a row per original, in the order in which they come.

    Attributes:
        scope: int32[n], within the partition.
        sequence: int64[n].
        epoch: int64[n], 0 where there are none.
    """

    scope: NDArray[np.int32]
    sequence: NDArray[np.int64]
    epoch: NDArray[np.int64]

    def recount(
        self, rows: NDArray[np.int32], judged: NDArray[np.bool_], rules: RecountRules
    ) -> NDArray[np.bool_]:
        """Return bool[n]: which of the records pass, copies too; ``rows`` has the original of each."""
        scopes: dict[int, _Scope] = {}
        passes = np.zeros(rows.size, np.bool_)
        columns = (*(each[rows].tolist() for each in (self.scope, self.sequence, self.epoch)), judged.tolist())
        for at, (name, number, epoch, good) in enumerate(zip(*columns, strict=True)):
            if not good:
                continue
            if name in scopes:
                passes[at] = scopes[name].passes(number, epoch, rules)
            else:
                scopes[name], passes[at] = _Scope(epoch, number, {number}), True
        return passes

    def passes(self, judged: NDArray[np.bool_], window: int) -> NDArray[np.bool_]:
        """Return bool[n]: which pass by the rules of the contract; what cannot be judged leaves no trace."""
        # Without a reorder window sequences rise in each scope and epoch.
        if not window:
            return judged
        order = np.lexsort((np.arange(self.scope.size), self.epoch, self.scope))
        run = _runs(_changes(self.scope[order]) | _changes(self.epoch[order]))
        sequence, good = self.sequence[order], judged[order]
        # Each run of one scope and epoch gets a span of numbers of its own, above those of the run before: then
        # one running maximum over everything is that of each run. 0 of a span stands for nothing yet.
        least = int(sequence.min(initial=0))
        span = int(sequence.max(initial=0)) - least + 2
        height = np.maximum.accumulate(run * span + np.where(good, sequence - least + 1, 0))
        before = np.concatenate([[-1], height[:-1]])[: run.size] - run * span
        passes = np.empty(run.size, np.bool_)
        passes[order] = good & ((before <= 0) | (sequence - least + 1 >= before - window))
        return passes


def count_up(rng: np.random.Generator, count: int) -> Numbers:
    """Count in the one scope of a partition: what benchmarks make millions of."""
    sequence = np.cumsum(_steps(rng, count)) + int(rng.integers(0, _BEGIN_MOST))
    return Numbers(np.zeros(count, np.int32), sequence, np.zeros(count, np.int64))


def draw_scopes(rng: np.random.Generator, count: int, scopes: int) -> NDArray[np.int32]:
    """Return int32[count]: the scope of each original, interleaved; each occurs if originals suffice."""
    drawn = np.minimum(rng.exponential(scopes / _SKEW, count), scopes - 1).astype(np.int32)
    some = rng.permutation(count)[:scopes]
    drawn[some] = np.arange(some.size, dtype=np.int32)
    return drawn


def draw_numbers(rng: np.random.Generator, scope: NDArray[np.int32], *, epochs: bool, window: int) -> Numbers:
    """Count in each scope; ``scope`` is int32[n], from `draw_scopes`.

    With ``epochs`` producers restart: a higher epoch, and the count begins again. With a reorder window some
    originals are overtaken by later ones.
    """
    count = scope.size
    order = np.argsort(scope, kind="stable")
    opens = _changes(scope[order])
    epoch = np.zeros(count, np.int64)
    if epochs:
        restarts = (rng.random(count) < _RESTART_SHARE) & ~opens
        raised = np.where(restarts, rng.integers(1, _EPOCH_STEP_MOST + 1, count), 0)
        epoch = _within(raised, opens, rng.integers(0, _EPOCH_FIRST_MOST + 1, count))
        opens = opens | restarts
    steps = _steps(rng, count)
    sequence = _within(steps, opens, rng.integers(_BEGIN_LEAST, _BEGIN_MOST + 1, count))
    if window:
        sequence = sequence[_overtaken(rng, _runs(opens), window)]
    back = np.argsort(order)
    return Numbers(scope, sequence[back], epoch[back])


def _steps(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Draw by how much each number is above the one before it."""
    return np.where(rng.random(count) < _GAP_SHARE, rng.integers(2, _GAP_MOST + 1, count), 1)


def _overtaken(rng: np.random.Generator, run: NDArray[np.int64], window: int) -> NDArray[np.int64]:
    """Return which one comes at each place: most their own, some later, none outside of its run."""
    count = run.size
    chance = rng.random(count)
    # Mostly by a few places, however wide the window is.
    within = 1 + np.floor(window * rng.random(count) ** 3)
    beyond = window + rng.integers(1, _BEYOND_MOST + 1, count)
    back = np.where(chance < _OVERTAKEN_SHARE, within, 0.0)
    back = np.where(chance < _BEYOND_SHARE, beyond, back)
    # The half puts it behind the one whose place it takes.
    place = np.arange(count) + np.where(back > 0, back + 0.5, 0)
    order: NDArray[np.int64] = np.lexsort((place, run))
    return order


def _changes(column: NDArray[np.int32] | NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return bool[n]: where a value differs from the one before it, the first one included."""
    changes = np.ones(column.size, np.bool_)
    np.not_equal(column[1:], column[:-1], out=changes[1:])
    return changes


def _runs(opens: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return int64[n]: the number of the run that each row is in."""
    run: NDArray[np.int64] = np.cumsum(opens) - 1
    return run


def _within(steps: NDArray[np.int64], opens: NDArray[np.bool_], begins: NDArray[np.int64]) -> NDArray[np.int64]:
    """Add steps up within each run; a run's first row has its row of ``begins``."""
    run, first = _runs(opens), np.flatnonzero(opens)
    total = np.cumsum(steps)
    summed: NDArray[np.int64] = total - total[first][run] + begins[first][run]
    return summed
