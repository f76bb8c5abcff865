"""Names of modules, classes and functions that have gone, with what is written in their place.

A word is here because its meaning moved to another: it must not come back with a third one.
"""

from __future__ import annotations

from typing import NamedTuple


class Word(NamedTuple):
    """A name that has gone, and what is written in its place."""

    was: str
    now: str
    below: str = ""  # the folder it is forbidden in; elsewhere it means something else


GONE_MODULES = (
    Word("gathered", "bulk_load"),
    Word("extents", "hash_table"),
    Word("id_table", "memtable"),
    Word("run_pages", "sorted_run"),
    Word("run_shelf", "sorted_run"),
    Word("bloom_index", "numbering"),
    Word("id_places", "offset_index"),
    Word("bulk", "state_log"),
    Word("head", "changelog"),
    Word("recording", "clock_history"),
    Word("clock_trace", "engine.ids.clock"),
    Word("words", "loads", "processor/engine"),
    Word("compare", "fingerprints", "processor/engine"),
    Word("route", "repartition", "processor"),
    Word("router", "routed"),
    Word("hop_work", "hop_kinds"),
    Word("opening", "open_partition"),
    Word("seam", "client"),
    Word("kip516", "requests"),
    Word("kip664", "requests"),
    Word("upstream", "drain"),
    Word("source", "source_identity", "processor"),
    Word("produce", "plain/producer", "processor"),
    Word("consume", "plain/consumer", "processor"),
    Word("faults", "fault_points", "processor"),
    Word("tape", "align"),
    Word("history", "recent"),
    Word("limits", "span", "processor/verify"),
    Word("by_word", "unproved"),
    Word("believed", "unproved"),
    Word("sharing", "streams"),
    Word("aside", "side_output"),
    Word("direct", "fast_parse"),
)
GONE_CLASSES = (
    Word("Gathered", "BulkLoad"),
    Word("IdTable", "Memtable"),
    Word("Shelf", "RunIndex"),
    Word("Places", "OffsetIndex"),
    Word("Bulk", "StateLog"),
    Word("Head", "ChangelogHead"),
    Word("Recording", "ClockHistory"),
    Word("HopWork", "HopKind"),
    Word("Opening", "PartitionOpener"),
    Word("Link", "Client"),
    Word("Tape", "Cursor"),
    Word("History", "RecentRecords"),
    Word("Limits", "VerifySpan"),
    Word("ByWord", "TrustedReceipts"),
    Word("BelievedClock", "InferredClock"),
    Word("Aside", "SideOutput"),
    Word("Made", "a noun, such as PieceOutcome,"),
    Word("Done", "a noun, such as VerifyReport,"),
    Word("Found", "a noun, such as JsonMatches,"),
    Word("Known", "a noun, such as PartitionFacts,"),
    Word("Said", "a noun"),
    Word("Wrong", "PageError"),
    Word("Checked", "a noun, such as DemoChecks,"),
    Word("Confirmed", "CandidateRows"),
    Word("Remembered", "StagedIds"),
    Word("Step", "CommitStep, PartitionStep or Advance"),
)
GONE_FUNCTIONS = (
    Word("times", "take_clock_stats", "processor/judges"),
    Word("times", "take_clock_stats", "processor/pipeline"),
    Word("expendable", "take_trim_offset"),
    Word("settle", "flush", "processor/pipeline"),
    Word("settle", "flush", "processor/state"),
    Word("take_in", "apply"),
    Word("pour", "insert"),
    Word("skim", "insert"),
)
