"""Reads from docs/operations.md what a worker has to be allowed, and gives or takes each of it at a broker.

A right and what it is on are one `Grant`. The words of the page's table are known here one by one: what is new
there is not understood, and fails.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.support.kafka.topics import CALL_S, admin, until
from tests.support.suite.closure import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.worker.process import WorkerConfig

PAGE = ROOT / "docs" / "operations.md"
_OPERATIONS = {
    "alter": AclOperation.ALTER,
    "create": AclOperation.CREATE,
    "delete": AclOperation.DELETE,
    "describe": AclOperation.DESCRIBE,
    "describe-configs": AclOperation.DESCRIBE_CONFIGS,
    "read": AclOperation.READ,
    "write": AclOperation.WRITE,
}
NO_MATTER = "no matter if not"
GROUP, IDS, CLUSTER = "group", "transactional ids", "cluster"
_WRITTEN = ("sink", "duplicates", "quarantine", "changelog")
_HOP = ("repartition", "positions")
_MARKS = ("index", "route-index")
_ON = {
    "all topics of the config": ("source", *_WRITTEN, *_HOP, *_MARKS),
    "the sources": ("source",),
    "the group `application_id`": (GROUP,),
    "sink, duplicates, quarantine and changelog": _WRITTEN,
    "with `route` also `…-repartition` and `…-positions`": _HOP,
    "`…-index`": ("index",),
    "with `route` also `…-route-index`": ("route-index",),
    "transactional ids with the prefix `application_id`": (IDS,),
    "the topics, if `create_topics` is on": (*_WRITTEN, *_HOP, *_MARKS),
    "`…-repartition`, and the changelogs of pipelines with insert ids": ("repartition", "changelog"),
    'the cluster, for the case of "A transaction that hangs" below': (CLUSTER,),
}
_WITHOUT = "Without it they grow, and the log says so"
_REMARKS = {'see ["Index topics"](#index-topics)', _WITHOUT}
_CLUSTER_NAME = "kafka-cluster"
_ANY_HOST = "*"


class Grant(NamedTuple):
    """A right on something.

    Attributes:
        right: As the page writes it.
        on: A topic's purpose, `GROUP`, `IDS` or `CLUSTER`.
        optional: Whether the page says that a worker does without.
    """

    right: str
    on: str
    optional: bool

    @property
    def operation(self) -> str:
        """As messages write it."""
        return self.right.replace("-", "_").upper()

    def name(self, config: WorkerConfig) -> str:
        """Return what it is on as messages name it, in an application of one pipeline with ``route``."""
        pipeline, application = config.pipelines[0], config.application_id
        if self.on in {"source", "sink", "duplicates", "quarantine"}:
            return str(getattr(pipeline, self.on))
        if self.on in {GROUP, IDS}:
            return application
        return "the cluster" if self.on == CLUSTER else f"{application}-{pipeline.name}-{self.on}"


def documented() -> list[Grant]:
    """Return what the table has, in its order, each once."""
    _, _, below = PAGE.read_text(encoding="utf-8").partition("| right | on |\n| --- | --- |\n")
    rows = [line.strip("| ").split(" | ") for line in below.partition("\n\n")[0].splitlines()]
    assert len(rows) > 5, "the table of rights is not where it was"
    found: dict[tuple[str, str], Grant] = {}
    for rights, places in rows:
        words = re.split(r", (?:and )?", rights)
        said = re.split(r"[;:] |\. ", places)
        parts = [part for part in said if part not in _REMARKS]
        for on in (on for part in parts for on in _ON[part]):
            for right in words:
                if right != NO_MATTER:
                    assert right in _OPERATIONS, right
                    # Of what may be missing altogether, each right may be; and what few need.
                    optional = NO_MATTER in words or _WITHOUT in said or on in {*_MARKS, CLUSTER}
                    found.setdefault((right, on), Grant(right, on, optional))
    return list(found.values())


class Rights:
    """What a user may do at a broker, and nothing else.

    Args:
        bootstrap: A door of the broker where everything is allowed.
        user: Whose rights they are.
        config: What the names are of.
    """

    def __init__(self, bootstrap: str, user: str, config: WorkerConfig) -> None:
        self._admin = admin(bootstrap)
        self._user = f"User:{user}"
        self._config = config

    def give(self, grants: Iterable[Grant]) -> None:
        """Allow these."""
        self._set([self._rule(grant, AclPermissionType.ALLOW) for grant in grants])

    def take(self, grant: Grant) -> None:
        """Take one away; the right to describe, which others imply, is denied."""
        self._unset(self._rule(grant, AclPermissionType.ALLOW))
        if grant.right == "describe":
            self._set([self._rule(grant, AclPermissionType.DENY)])

    def give_back(self, grant: Grant) -> None:
        """Undo `take`."""
        self._unset(self._rule(grant, AclPermissionType.DENY))
        self.give([grant])

    def _rule(self, grant: Grant, permission: AclPermissionType) -> AclBinding:
        kinds = {GROUP: ResourceType.GROUP, IDS: ResourceType.TRANSACTIONAL_ID, CLUSTER: ResourceType.BROKER}
        pattern = ResourcePatternType.PREFIXED if grant.on == IDS else ResourcePatternType.LITERAL
        kind = kinds.get(grant.on, ResourceType.TOPIC)
        name = _CLUSTER_NAME if grant.on == CLUSTER else grant.name(self._config)
        operation = _OPERATIONS[grant.right]
        return AclBinding(kind, name, pattern, self._user, _ANY_HOST, operation, permission)

    def _set(self, rules: list[AclBinding]) -> None:
        for done in self._admin.create_acls(rules).values():
            done.result(CALL_S)
        # The controller has it; what asks is the broker.
        until(lambda: all(map(self._there, rules)), "the broker knows the rules")

    def _unset(self, rule: AclBinding) -> None:
        for done in self._admin.delete_acls([_filter(rule)]).values():
            done.result(CALL_S)
        until(lambda: not self._there(rule), "the broker has dropped the rule")

    def _there(self, rule: AclBinding) -> bool:
        return bool(self._admin.describe_acls(_filter(rule)).result(CALL_S))


def _filter(rule: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        rule.restype,
        rule.name,
        rule.resource_pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )
