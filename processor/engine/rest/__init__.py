"""Rows at rest: their ids and fingerprints by the worker's own kernels, and what becomes of them.

What Spark's side uses stands here; it imports nothing else of the engine.
"""

from __future__ import annotations

from processor.engine.extract.json_matches import JsonKind, JsonMatches, unframed
from processor.engine.extract.normalise import IdTextForm, Normal
from processor.engine.ids.new_ids import new_ids
from processor.engine.rest.columns import IdColumn, RowIds, ids_of_columns
from processor.engine.rest.json_rows import JsonIds, JsonRows, fingerprints_of, pointer_of
from processor.engine.rest.judge import NOBODY, RestRows, RestVerdicts, judge_rows
from processor.engine.rest.partitioner import ANYWHERE, partitions_of
from processor.engine.rest.probe import LowProbe
from processor.engine.rest.routing import routed_partitions
from processor.engine.rest.row_texts import MemberColumn, json_of_columns
from processor.engine.rest.warm import rest_is_warm, warm_rest
from processor.engine.verdict import Fault, Verdict

__all__ = [
    "ANYWHERE",
    "NOBODY",
    "Fault",
    "IdColumn",
    "IdTextForm",
    "JsonIds",
    "JsonKind",
    "JsonMatches",
    "JsonRows",
    "LowProbe",
    "MemberColumn",
    "Normal",
    "RestRows",
    "RestVerdicts",
    "RowIds",
    "Verdict",
    "fingerprints_of",
    "ids_of_columns",
    "json_of_columns",
    "judge_rows",
    "new_ids",
    "partitions_of",
    "pointer_of",
    "rest_is_warm",
    "routed_partitions",
    "unframed",
    "warm_rest",
]
