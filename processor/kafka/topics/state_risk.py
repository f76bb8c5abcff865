"""Says which settings of a topic would delete state."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_RETENTION = ("retention.ms", "retention.bytes")
_MODES = {"compact": "watermark", "delete": "insert-id"}
"""By the cleanup policy of a changelog, whose state it holds."""


def state_at_risk(configs: Mapping[str, str], right: str, mode: str, *, changelog: bool) -> Iterator[str]:
    """Yield what is wrong with the settings of an internal topic.

    Args:
        configs: As they are.
        right: The cleanup policy that it must have.
        mode: Of the pipeline.
        changelog: Whether it is its changelog.
    """
    policy = configs.get("cleanup.policy", "delete")
    if policy != right and changelog and _made_for(configs, policy):
        was, now = _MODES[policy], mode
        yield (
            f"holds the state of mode {was} (cleanup.policy is {policy}), and the pipeline has mode {now} now: "
            f"where dedup.mode was changed from {was} to {now} over this state, set it back, or give the "
            "pipeline another name and begin with an empty state, for a state of one mode means nothing under "
            "another (see 'Changes' and 'Beginning anew' in docs/operations.md). Where it was not, "
            f"cleanup.policy must be {right}, or state is deleted"
        )
    elif policy != right:
        yield f"cleanup.policy is {policy}: must be {right}, or state is deleted"
    elif right == "delete":
        for key in _RETENTION:
            if configs.get(key, "-1") != "-1":
                yield f"{key} is {configs[key]}: must be -1, or state is deleted"


def _made_for(configs: Mapping[str, str], policy: str) -> bool:
    """Whether a changelog has a policy and a retention that Seqmark makes one with, of either mode."""
    kept = all(configs.get(key) == "-1" for key in _RETENTION)
    return kept and policy in {"compact", "delete"}
