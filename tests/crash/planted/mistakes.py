"""Mistakes that would lose or repeat records, and the test that catches each.

A planted mistake is a small change to the processor that somebody could make: the list is data, `new` takes the
place of `old` (which stands in `file` exactly once, or the list is out of date), and `test` must fail then.
"""

from __future__ import annotations

from typing import NamedTuple


class Mistake(NamedTuple):
    """One planted mistake.

    Attributes:
        name: What is wrong then.
        file: In which file.
        old: What stands there.
        new: What takes its place.
        test: The pytest node that must fail.
        broker: Whether that test needs a broker.
    """

    name: str
    file: str
    old: str
    new: str
    test: str
    broker: bool = False


MISTAKES = (
    Mistake(
        "with latest a partition begins at its end whatever the others say",
        "processor/worker/open_partition.py",
        "            known_beginning = await self._beginning(tp)\n",
        "            known_beginning = None\n",
        "tests/unit/worker/test_open_partition.py::"
        "test_with_latest_a_partition_begins_where_it_ended_when_the_pipeline_began",
    ),
    Mistake(
        "a recording of another source's state stays in a certificate",
        "processor/verify/span.py",
        "        origin, history, brought = None, None, []\n",
        "        origin = None\n",
        "tests/unit/verify/test_span.py::"
        "test_a_recording_of_the_state_of_a_source_before_is_not_in_the_certificate",
    ),
    Mistake(
        "the ids of topics are not compared at assignment",
        "processor/worker/open_partition.py",
        "            self._require_same_topics(tp, position)\n",
        "            pass\n",
        "tests/broker/worker/test_identity.py::test_a_sink_made_anew_is_refused_and_a_reset_goes_on_into_the_new_one",
        broker=True,
    ),
    Mistake(
        "the source is read by its name",
        "processor/kafka/fetch.py",
        "        self._by_name = False\n",
        "        self._by_name = True\n",
        "tests/broker/worker/test_identity.py::test_nothing_of_a_topic_made_anew_between_two_fetches_is_fetched",
        broker=True,
    ),
    Mistake(
        "asking where a topic is may create it",
        "processor/kafka/protocol/requests.py",
        "super().__init__(wanted, False, ",
        "super().__init__(wanted, True, ",
        "tests/broker/worker/test_identity.py::"
        "test_a_worker_does_not_bring_a_deleted_topic_back_and_looks_at_the_settings_of_the_next_one",
        broker=True,
    ),
    Mistake(
        "a changelog that ends before or behind what was restored is written on",
        "processor/pipeline/ports.py",
        "        if landed < self.changelog_end or (alone and landed > self.changelog_end):\n",
        "        if landed < 0:\n",
        "tests/unit/pipeline/test_slot_pipeline.py::"
        "test_a_changelog_that_ends_elsewhere_is_noticed_before_the_transaction_ends",
    ),
    Mistake(
        "an output made anew is written on",
        "processor/kafka/transactions/producer.py",
        "            if offset < self._known.get(tp, 0):\n",
        "            if offset < 0:\n",
        "tests/broker/kafka/test_producer.py::"
        "test_a_topic_that_was_made_anew_in_between_is_told_by_where_a_batch_lands",
        broker=True,
    ),
    Mistake(
        "a failed look at the topics is remembered",
        "processor/worker/context.py",
        "            if self._looked is looked:\n                self._looked = None\n            raise\n",
        "            raise\n",
        "tests/unit/worker/test_context.py::test_a_failed_look_is_asked_again_and_one_that_succeeds_is_shared",
    ),
    Mistake(
        "a foreign name that stands for a worker's address reads what it says",
        "processor/worker/web/guard.py",
        "    return _oversized(request) or _misnamed(request, names) or _foreign(request, is_page=is_page)\n",
        "    return _oversized(request) or _foreign(request, is_page=is_page)\n",
        "tests/unit/worker/test_web_guard.py::test_a_name_that_was_rebound_to_this_address_reads_nothing",
    ),
    Mistake(
        "a page of another origin reads what a worker says",
        "processor/worker/web/guard.py",
        "    return None if is_page and follows_link else Refusal(403, text)\n",
        "    return None if is_page or follows_link else Refusal(403, text)\n",
        "tests/unit/worker/test_web_guard.py::test_a_link_leads_to_the_page_and_to_no_data",
    ),
    Mistake(
        "a worker that may not show receipts explains with keys and values",
        "processor/commands/run/worker.py",
        "    contents = settings.worker.web_receipts\n",
        "    contents = True\n",
        "tests/broker/worker/test_web_answers.py::"
        "test_nothing_of_a_record_leaves_a_worker_that_may_not_show_receipts",
        broker=True,
    ),
    Mistake(
        "a worker asks whatever address a member of its group says",
        "processor/worker/web/others.py",
        "    elif said is None or said != seen:\n",
        "    elif said is None:\n",
        "tests/unit/worker/test_web_others.py::"
        "test_only_addresses_that_the_broker_sees_or_of_this_machine_are_asked",
    ),
    Mistake(
        "what another worker says of an id is passed on whatever it is",
        "processor/worker/web/site.py",
        """{"partition": int(each["partition"]), **known(each, pipeline)}""",
        """{**each, **known(each, pipeline)}""",
        "tests/unit/worker/test_web_others.py::"
        "test_of_what_others_say_of_an_id_only_positions_and_times_are_passed_on",
    ),
    Mistake(
        "a state is taken over whoever's it is",
        "processor/worker/open_partition.py",
        "        self._require_own(position, changelog)\n        if position is None",
        "        if position is None",
        "tests/broker/worker/test_identity.py::"
        "test_a_state_of_another_application_whose_name_runs_together_with_ours_is_refused_by_name",
        broker=True,
    ),
    Mistake(
        "local state is written before the commit",
        "processor/pipeline/slot_pipeline.py",
        "        await self._output.commit(offsets, lambda: reached(CommitStep.OFFSETS, self.name))  # 4\n",
        "        for partition in moved:\n"
        "            early = LocalMark(0, partition.position.state_id)\n"
        "            partition.table.apply(changes[partition.number], early)\n"
        "        await self._output.commit(offsets, lambda: reached(CommitStep.OFFSETS, self.name))  # 4\n",
        "tests/unit/pipeline/test_slot_pipeline.py::"
        "test_where_a_step_fails_nothing_is_written_locally_and_a_new_start_judges_the_same",
    ),
    Mistake(
        "a sequence equal to the watermark passes: >= for >",
        "processor/engine/watermark/partition.py",
        "is_later(sequence[i], mark, wraps):",
        "sequence[i] >= mark:",
        "tests/property/judges/test_watermark_model.py::"
        "test_the_lowest_number_there_is_passes_as_the_first_record_and_is_a_duplicate_as_the_second",
    ),
    Mistake(
        "an aborted transaction of the source is forgotten",
        "processor/wire/batch_run.py",
        "            wanted[index] = False\n",
        "            pass\n",
        "tests/property/wire/test_batches.py::"
        "test_transactions_of_several_producers_are_seen_as_a_read_committed_consumer_sees_them",
    ),
    Mistake(
        "a refused batch does not fail its transaction, which then commits",
        "processor/kafka/transactions/producer.py",
        "                        self._fail(refusal(tp, batches[tp], code))\n",
        '                        log.debug("%s", refusal(tp, batches[tp], code))\n',
        "tests/broker/contract/test_refusals.py::test_a_compacted_sink_that_refuses_a_null_key_stops_the_worker",
        broker=True,
    ),
    Mistake(
        "the end of a transaction is not looked for in its partitions",
        "processor/kafka/transactions/producer.py",
        "        if commit and first:\n",
        "        if not commit and first:\n",
        "tests/broker/kafka/test_markers.py::test_an_abort_does_not_take_back_the_commit_before_it",
        broker=True,
    ),
    Mistake(
        "a new owner does not look whether the last end has reached all partitions",
        "processor/kafka/transactions/markers.py",
        "            if known is not None:\n                found[tp] = known.first_offset\n",
        "            if known is None:\n                found[tp] = limit.end\n",
        "tests/broker/kafka/test_markers.py::test_a_commit_does_not_show_what_was_aborted_before_it",
        broker=True,
    ),
    Mistake(
        "the fence aborts under the old owner's epoch, and raises it afterwards",
        "processor/kafka/transactions/markers.py",
        "    if last.ending:\n        return False\n",
        "    if last.ending:\n        return False\n"
        "    if last.open:\n"
        "        coordinator.producer_id, coordinator.epoch = last.producer_id, last.epoch\n"
        "        await coordinator.end(commit=False)\n"
        "        return False\n",
        "tests/broker/kafka/test_fence.py::"
        "test_an_old_owner_that_goes_on_between_two_requests_of_the_fence_commits_all_or_nothing[half_begun-True]",
        broker=True,
    ),
    Mistake(
        "nobody looks once more after the epoch was raised",
        "processor/kafka/transactions/markers.py",
        "    return not await _found_open(client, written, last.producer_id, deadline_s)\n",
        "    return True\n",
        "tests/broker/kafka/test_fence.py::"
        "test_an_old_owner_that_goes_on_between_two_requests_of_the_fence_commits_all_or_nothing[not_marked-False]",
        broker=True,
    ),
    Mistake(
        "raising the epoch forgets how the transaction before has ended",
        "processor/kafka/transactions/markers.py",
        "coordinator.init(last.outcome if found else None)",
        "coordinator.init()",
        "tests/broker/kafka/test_markers.py::test_a_fence_that_is_cut_off_does_not_forget_how_it_ended[True]",
        broker=True,
    ),
    Mistake(
        "a transaction is aborted while a batch of it may still be on its way",
        "processor/kafka/transactions/producer.py",
        "                if not self._unanswered:\n                    await self.end(commit=False)\n",
        "                await self.end(commit=False)\n",
        "tests/broker/kafka/test_fence.py::"
        "test_a_batch_that_arrives_after_its_owner_has_given_up_is_not_in_anothers_transaction",
        broker=True,
    ),
    Mistake(
        "a slot whose id the coordinator has forgotten makes the whole group rebalance",
        "processor/worker/slot.py",
        "                if not await self._is_ours():\n",
        "                if True:\n",
        "tests/broker/kafka/test_fenced_by_nobody.py::"
        "test_a_slot_that_was_idle_until_its_id_was_forgotten_is_built_anew_alone",
        broker=True,
    ),
    Mistake(
        "the commit does not wait until the output is acknowledged",
        "processor/pipeline/slot_pipeline.py",
        "        await self._output.flush()\n        reached(CommitStep.OUTPUT, self.name)  # 2\n",
        "        reached(CommitStep.OUTPUT, self.name)  # 2\n",
        "tests/unit/pipeline/test_slot_pipeline.py::test_a_commit_is_exactly_the_numbered_steps_in_their_order",
    ),
    Mistake(
        "a restore stops one record early",
        "processor/state/restore.py",
        "in changelog.columns(start, stop):",
        "in changelog.columns(start, stop - 1):",
        "tests/unit/state/test_restore.py::test_the_last_committed_record_is_taken_in_wherever_the_changelog_ends",
    ),
    Mistake(
        "a restore does not wait for the end of an open transaction",
        "processor/state/restore.py",
        "        if limits.stable == limits.end:\n            return limits\n",
        "        return limits\n",
        "tests/unit/state/test_restore.py::test_an_open_transaction_is_waited_for",
    ),
    Mistake(
        "the source offsets are not part of the transaction",
        "processor/kafka/transactions/output.py",
        "        await self._producer.add_offsets(self._group_id, self._positions(offsets), note)\n",
        "",
        "tests/crash/test_commit_steps.py::test_a_kill_after_a_step_loses_and_repeats_nothing[local]",
        broker=True,
    ),
    Mistake(
        "the state leads: a position is committed beyond what was taken in",
        "processor/pipeline/piece.py",
        "        int(piece.columns.offset[row]),\n    )\n",
        "        piece.next_offset,\n    )\n",
        "tests/unit/pipeline/test_slot_pipeline.py::"
        "test_without_quarantine_what_comes_before_is_committed_and_the_record_is_named",
    ),
    Mistake(
        "a chunk that does not begin at the position is taken in",
        "processor/pipeline/slot_pipeline.py",
        "        if chunk.position != partition.position.next_offset:\n",
        "        if chunk.position < 0:\n",
        "tests/unit/pipeline/test_slot_pipeline.py::"
        "test_a_chunk_from_another_position_than_expected_is_a_rebuild_and_takes_nothing_in",
    ),
    Mistake(
        "the previous owner is not fenced at assignment",
        "processor/worker/open_slot.py",
        "self._producer = await self._fenced(self._id, self._numbers)",
        'self._producer = await self._fenced(self._id._replace(pipeline=f"{id(self)}"), self._numbers)',
        "tests/crash/test_zombies.py::"
        "test_a_worker_paused_between_two_steps_commits_nothing_afterwards[offsets]",
        broker=True,
    ),
    Mistake(
        "a batch's last offset delta is its count, not one less",
        "processor/wire/encode.py",
        "                self.count - 1,\n",
        "                self.count,\n",
        "tests/property/wire/test_batches.py::test_what_passed_is_read_by_aiokafka_as_exactly_the_kept_records",
    ),
    Mistake(
        "a batch with gaps, as compaction leaves it, goes on as it is",
        "processor/wire/batch_run.py",
        "= batches[:, COUNT] == batches[:, LAST_DELTA] + 1\n",
        "= batches[:, COUNT] >= 0\n",
        "tests/property/wire/test_batches.py::"
        "test_offsets_with_gaps_as_compaction_leaves_them_are_kept_by_the_decoder_and_closed_by_the_encoder",
    ),
    Mistake(
        "a batch with the broker's append times goes on as it is",
        "processor/wire/batch_run.py",
        "    return gapless & created\n",
        "    return gapless\n",
        "tests/unit/wire/test_decode.py::test_append_time_becomes_the_records_time",
    ),
    Mistake(
        "of several headers of one name the first counts",
        "processor/engine/extract/sequence.py",
        "            if same:\n                found = at\n",
        "            if same and found < 0:\n                found = at\n",
        "tests/property/engine/test_extract_model.py::"
        "test_of_several_headers_of_one_name_the_last_counts_also_when_it_is_worse",
    ),
    Mistake(
        "a batch's CRC is not checked",
        "processor/wire/batch_run.py",
        "        if google_crc32c.value(self.raw[start + CRC_FROM : stop]) != int(batch[CRC]):\n",
        "        if int(batch[CRC]) < 0:\n",
        "tests/unit/wire/test_decode.py::"
        "test_records_before_a_corrupt_batch_are_given_out_and_the_error_names_its_offset",
    ),
    Mistake(
        "records below the position are not skipped",
        "processor/engine/batch/scan.py",
        "        while row + skip < after and offset[row + skip] < position:\n",
        "        while row + skip < after and offset[row + skip] < 0:\n",
        "tests/unit/wire/test_decode.py::"
        "test_records_below_the_position_are_left_out_and_what_remains_is_written_again",
    ),
    Mistake(
        "control records do not move the position, so that a drain waits for ever",
        "processor/pipeline/slot_pipeline.py",
        "        self._move(partition, made.next_offset, made.batch)\n",
        "        if len(piece.columns):\n            self._move(partition, made.next_offset, made.batch)\n",
        "tests/unit/pipeline/test_slot_pipeline.py::test_a_chunk_of_control_records_moves_the_committed_position",
    ),
    Mistake(
        "a local state of another changelog is believed",
        "processor/state/restore.py",
        "if mark is None or (position is not None",
        "if mark is not None or (position is not None",
        "tests/unit/state/test_restore.py::test_a_local_state_of_another_changelog_is_thrown_away",
    ),
    Mistake(
        "a local state is believed where nothing behind its mark says whose it is",
        "processor/state/restore.py",
        "head.position.state_id == mark.state_id",
        "mark",
        "tests/unit/state/test_restore.py::"
        "test_a_local_state_of_another_changelog_is_thrown_away_if_nothing_behind_it_says_whose",
    ),
    Mistake(
        "of equal keys in a JSON object the first counts",
        "processor/engine/extract/json_scan.py",
        "                            if same:\n                                mask |=",
        "                            if same and kind[p, row] == 0:\n                                mask |=",
        "tests/unit/engine/test_json_scan.py::test_of_equal_keys_the_last_counts",
    ),
    Mistake(
        "a value of 129 nested arrays is taken for JSON",
        "processor/engine/extract/json_scan.py",
        "MOST_DEPTH = 128\n",
        "MOST_DEPTH = 129\n",
        "tests/unit/engine/test_json_scan.py::test_128_nested_arrays_and_objects_are_valid_and_129_are_not",
    ),
    Mistake(
        "a lone low surrogate is taken for text",
        "processor/engine/extract/json_text.py",
        "if code < 0 or 0xDC00 <= code <= 0xDFFF:",
        "if code < 0:",
        "tests/unit/engine/test_json_scan.py::test_lone_surrogates_are_refused_in_values_and_in_keys",
    ),
    Mistake(
        "a high surrogate is taken for text without its other half",
        "processor/engine/extract/json_text.py",
        "                    if low < 0xDC00 or low > 0xDFFF:\n",
        "                    if low < 0:\n",
        "tests/unit/engine/test_json_scan.py::test_lone_surrogates_are_refused_in_values_and_in_keys",
    ),
    Mistake(
        "a number with a fraction is called an integer",
        "processor/engine/extract/json_scan.py",
        "== 0x2E:\n                    what = 5\n",
        "== 0x2E:\n                    what = 4\n",
        "tests/unit/engine/test_json_scan.py::test_numbers_have_the_form_of_the_rfc",
    ),
    Mistake(
        "an integer beyond 64 bits is wrapped",
        "processor/engine/extract/sequence.py",
        "    if fault == 0 and beyond:\n        fault = 9\n",
        "",
        "tests/unit/engine/test_json_scan.py::test_a_sequence_is_a_json_integer_of_64_bits",
    ),
    Mistake(
        "bytes after a JSON value are not looked at",
        "processor/engine/extract/json_scan.py",
        "valid = at == stop",
        "valid = True",
        "tests/unit/engine/test_json_scan.py::test_nothing_follows_the_value",
    ),
    Mistake(
        "a tilde of a JSON pointer is unescaped in the wrong order",
        "processor/engine/extract/pointers.py",
        '.replace("~1", "/").replace("~0", "~")',
        '.replace("~0", "~").replace("~1", "/")',
        "tests/unit/engine/test_json_scan.py::test_tilde_01_is_tilde_1_and_no_slash",
    ),
    Mistake(
        "a changed scope is not in the changelog batch",
        "processor/judges/watermark.py",
        "self._restated else self._table.changed()\n",
        "self._restated else self._table.changed()[1:]\n",
        "tests/broker/modes/test_scopes.py::test_the_last_of_each_scope_stands_in_the_changelog",
        broker=True,
    ),
    Mistake(
        "a scope that changes again is not written locally again",
        "processor/engine/watermark/scope_kernels.py",
        "        words[np.int64(unsaved[k])] &= ~UNSAVED\n",
        "        pass\n",
        "tests/unit/engine/test_scope_table.py::test_the_log_of_blocks_stays_short_and_holds_the_last_of_each_scope",
    ),
    Mistake(
        "a restore forgets the epoch",
        "processor/engine/watermark/scope_codec.py",
        "words[word + epoch_at] = np.int64(get_be(data, behind, 8))",
        "words[word + epoch_at] = np.int64(0)",
        "tests/unit/engine/test_scope_table.py::test_a_scope_is_read_back_as_it_was_written_by_codec_and_kernel",
    ),
    Mistake(
        "the reorder window is one number too short",
        "processor/engine/watermark/scope_kernels.py",
        "        if distance > window:\n            verdict",
        "        if distance >= window:\n            verdict",
        "tests/unit/engine/test_scope_table.py::test_the_window_has_exactly_w_numbers",
    ),
    Mistake(
        "the reorder window is one number too long",
        "processor/engine/watermark/scope_kernels.py",
        "        if distance > window:\n            verdict",
        "        if distance > window + np.uint64(1):\n            verdict",
        "tests/unit/engine/test_scope_table.py::test_the_window_has_exactly_w_numbers",
    ),
    Mistake(
        "a lower epoch passes",
        "processor/engine/watermark/scope_kernels.py",
        "late = own < held\n",
        "late = False\n",
        "tests/unit/engine/test_scope_table.py::test_a_higher_epoch_forgets_the_window",
    ),
    Mistake(
        "a higher epoch keeps what the window has seen",
        "processor/engine/watermark/scope_kernels.py",
        "                        give_row(meta, free, words[word + window_at])\n"
        "                    words[word + window_at] = 0\n",
        "                        pass\n",
        "tests/unit/engine/test_scope_table.py::test_a_higher_epoch_forgets_the_window",
    ),
    Mistake(
        "of numbers that wrap exactly half the range ahead is behind",
        "processor/engine/watermark/serial_numbers.py",
        "ahead <= wraps - ahead",
        "ahead < wraps - ahead",
        "tests/unit/engine/test_scope_table.py::test_exactly_half_the_range_ahead_is_new",
    ),
    Mistake(
        "a reorder window stays where it is when the numbers wrap",
        "processor/engine/watermark/scope_kernels.py",
        "elif number < mark:\n",
        "elif False:\n",
        "tests/unit/engine/test_scope_table.py::test_a_window_is_remembered_across_the_wrap",
    ),
    Mistake(
        "an epoch that was left begins the scope anew",
        "processor/engine/watermark/scope_kernels.py",
        "late = taken >= 0 and ",
        "late = False and ",
        "tests/unit/engine/test_scope_table.py::test_the_last_16_epochs_that_were_left_are_late",
    ),
    Mistake(
        "a restore forgets the epochs that were left",
        "processor/engine/watermark/scope_codec.py",
        "pool[taken, 0] = np.uint64(left)",
        "pool[taken, 0] = np.uint64(0)",
        "tests/unit/engine/test_scope_table.py::test_a_scope_is_read_back_as_it_was_written_by_codec_and_kernel",
    ),
    Mistake(
        "of several faults the sequence's counts before the scope's",
        "processor/judges/watermark.py",
        "        sequence, more = self._sequence.extract(columns)\n"
        "        np.copyto(fault, more, where=fault == 0)\n",
        "        sequence, more = self._sequence.extract(columns)\n"
        "        np.copyto(fault, more, where=more != 0)\n",
        "tests/broker/contract/test_topics.py::"
        "test_with_several_faults_the_first_of_scope_sequence_and_epoch_counts",
        broker=True,
    ),
    Mistake(
        "a reset takes in the record that is to be processed next",
        "processor/reset/state.py",
        "np.searchsorted(columns.offset, stop)",
        "np.searchsorted(columns.offset, stop + 1)",
        "tests/unit/reset/test_reset.py::test_records_from_the_end_on_change_nothing_wherever_in_a_batch_it_lies",
    ),
    Mistake(
        "a reset asks the sink of now what was too large then",
        "processor/reset/state.py",
        "        judge.learn(evidence, named[named < rows])\n",
        "        judge.learn(evidence, named[:0])\n",
        "tests/broker/commands/test_reset.py::test_what_was_too_large_then_is_left_out_whatever_the_sink_takes_now",
        broker=True,
    ),
    Mistake(
        "a second reset forgets what the first one knew",
        "processor/reset/decide.py",
        "known.origin.known_from",
        "known.origin.source_offset",
        "tests/unit/reset/test_reset.py::test_what_becomes_of_a_state_follows_from_where_it_goes",
    ),
    Mistake(
        "what was fetched ahead goes on behind a batch that is stepped over",
        "processor/kafka/reader.py",
        "                    await _drop(coming)\n"
        "                    coming, at = None, max(at, error.offset)\n",
        "                    at = max(at, error.offset)\n",
        "tests/unit/kafka/test_reader.py::test_a_damaged_batch_stops_or_is_stepped_over",
    ),
    Mistake(
        "a gap that compaction has left at the end of a log is waited for",
        "processor/kafka/reader.py",
        "                            at = max(at, min(stop, chunk.last_stable_offset))\n",
        "",
        "tests/unit/kafka/test_reader.py::"
        "test_a_gap_that_compaction_has_left_at_the_end_is_read_over_in_any_topic",
    ),
    Mistake(
        "a reset writes only what has changed of a state that it keeps",
        "processor/reset/state.py",
        "    judge.restate()\n",
        "",
        "tests/broker/commands/test_reset.py::test_a_kept_state_is_written_whole",
        broker=True,
    ),
    Mistake(
        "an id is remembered a millisecond too long",
        "processor/engine/ids/exact/kernels.py",
        "        known = best >= 0 and when + window > now\n",
        "        known = best >= 0 and when + window >= now\n",
        "tests/property/engine/test_insert_id_model.py::"
        "test_the_boundary_is_exact_to_the_millisecond_and_with_filters_to_the_bucket",
    ),
    Mistake(
        "ids are taken for equal by the few bits that a slot has",
        "processor/engine/ids/exact/kernels.py",
        "found[k, 0] == first and found[k, 1] == second and numbers[k] > best",
        "numbers[k] > best",
        "tests/property/engine/test_insert_id_model.py::"
        "test_verdicts_are_the_models_with_a_commit_drop_or_restart_anywhere",
    ),
    Mistake(
        "an aborted renewal takes the id away",
        "processor/engine/ids/exact/kernels.py",
        "            if before >= meta[FLOOR]:\n",
        "            if False:\n",
        "tests/unit/engine/test_exact_index.py::test_a_dropped_transaction_leaves_no_trace",
    ),
    Mistake(
        "the sum of a content's leaves forgets their paths",
        "processor/engine/extract/json_scan.py",
        "h0, h1 = leaf_hash(p0, p1, p2, p3, lent, begin, size, what)",
        "h0, h1 = leaf_hash(b0, b1, b2, b3, lent, begin, size, what)",
        "tests/property/engine/test_content.py::test_these_differ",
    ),
    Mistake(
        "a NaN is a part of an id like any number",
        "processor/engine/extract/json_scan.py",
        "at, what = not_finite(data, at, stop), 10",
        "at, what = not_finite(data, at, stop), 5",
        "tests/property/engine/test_lenient_json.py::test_leniently_only_what_says_nothing_is_forgiven",
    ),
    Mistake(
        "what is not UTF-8 counts in a fingerprint",
        "processor/engine/extract/json_scan.py",
        "valid = at == stop and not unclear",
        "valid = at == stop",
        "tests/property/engine/test_lenient_json.py::test_leniently_only_what_says_nothing_is_forgiven",
    ),
    Mistake(
        "of members with one name all count",
        "processor/engine/extract/json_scan.py",
        "if element < 0 and count - members[depth] > 1:",
        "if False:",
        "tests/property/engine/test_content.py::test_these_are_the_same",
    ),
    Mistake(
        "parts of an id are hashed without their lengths",
        "processor/engine/bytes/siphash.py",
        "    return np.uint64(tag) | (np.uint64(size) << np.uint64(8))\n",
        "    return np.uint64(tag)\n",
        "tests/unit/engine/test_ids.py::test_ids_that_differ_in_any_part_have_different_hashes",
    ),
    Mistake(
        "a block of ids is taken over that does not go on from the one before",
        "processor/state/ids/id_log.py",
        "        elif first != self.index.next_number:\n",
        "        elif False:\n",
        "tests/unit/state/test_id_log.py::test_a_commit_that_is_missing_in_between_is_refused",
    ),
    Mistake(
        "nobody looks whether a changelog begins before the first living id",
        "processor/state/ids/id_log.py",
        "        if self._begins is not None and self._begins > self._floor:\n",
        "        if False:\n",
        "tests/unit/state/test_id_log.py::test_a_changelog_in_which_living_ids_are_deleted_is_refused_with_what_to_do",
    ),
    Mistake(
        "a replayed record that meets its own trace is dropped",
        "processor/judges/ids.py",
        "            verdict[replayed] = Verdict.PASS\n",
        "",
        "tests/unit/state/test_id_log.py::test_a_record_that_meets_its_own_trace_passes",
    ),
    Mistake(
        "ids are hashed with a secret that everybody knows",
        "processor/judges/ids.py",
        "os.urandom(SECRET_BYTES)",
        "bytes(SECRET_BYTES)",
        "tests/unit/state/test_id_log.py::test_the_secret_is_another_one_for_each_partition_and_stays",
    ),
    Mistake(
        "a snapshot is believed to hold what was committed while it was written",
        "processor/state/ids/bloom_log.py",
        "self._from = state.floor, snapshot.changelog_offset\n",
        "self._from = state.floor, 2**62\n",
        "tests/unit/state/test_bloom_log.py::"
        "test_a_restart_reads_filters_from_the_disk_and_of_the_changelog_what_they_lack",
    ),
    Mistake(
        "a restore from the local pages forgets the clock",
        "processor/state/ids/id_log.py",
        "        self.clock_ms = max(self.clock_ms, clock_ms)\n",
        "",
        "tests/property/state/test_id_state_model.py::test_verdicts_owners_and_expiries_are_the_dictionarys_wherever_it_is_killed_and_restored",
    ),
    Mistake(
        "a limit of the clock holds a record too late",
        "processor/engine/ids/clock.py",
        'side="right") - 1]',
        'side="left") - 1]',
        "tests/unit/engine/test_recorded_clock.py::test_readings_are_the_same_again_in_other_pieces",
    ),
    Mistake(
        "a clock whose beginning was deleted is called known",
        "processor/state/clock_history.py",
        "                self.known_from, self.before_ms = trace.since, trace.before_ms\n",
        "                self.known_from = 0\n",
        "tests/unit/state/test_clock_history.py::test_what_a_worker_has_bounded_is_known_until_it_is_deleted",
    ),
    Mistake(
        "what is remembered of a believed duplicate stays",
        "processor/verify/unproved.py",
        "            self._judge.undo()\n",
        "",
        "tests/unit/verify/test_unproved.py::test_what_is_right_is_right_and_what_is_believed_is_counted",
    ),
    Mistake(
        "a certificate counts notes of what is in the sink as dropped",
        "processor/verify/receipts.py",
        "            self.report.duplicates -= notes\n",
        "            pass\n",
        "tests/unit/verify/test_collisions.py::test_what_is_right_is_proved_and_counted",
    ),
    Mistake(
        "a collision that was too large only with its edit is taken as never judged",
        "processor/judges/exact.py",
        "        if evidence.fault[0] == Fault.TOO_LARGE:\n",
        "        if evidence.fault[0] == Fault.NONE:\n",
        "tests/unit/verify/test_collisions.py::test_a_collision_that_was_too_large_with_its_edit_was_judged",
    ),
    Mistake(
        "an event from the future is held against another clock than its record's",
        "spark_sink/query/events.py",
        'sql.unix_micros(TIME) - sql.unix_micros("timestamp") >',
        "sql.unix_micros(TIME) - sql.unix_micros(sql.current_timestamp()) >",
        "tests/spark/test_events.py::test_what_is_further_ahead_of_its_record_than_allowed_is_no_event",
    ),
    Mistake(
        "a sum of another field is counted on over one checkpoint",
        "spark_sink/query/definition.py",
        "text.removesuffix(column) + typed(column) if column else text",
        "aggregate_call(text).function",
        "tests/unit/spark_sink/test_definition.py::test_what_gives_the_numbers_another_meaning_is_told",
    ),
    Mistake(
        "a batch that was read across a topic made anew counts",
        "spark_sink/outputs/output.py",
        "        write(rows, number)\n        place.require_topic()\n",
        "        write(rows, number)\n",
        "tests/spark/test_sink_faults.py::"
        "test_a_topic_made_anew_in_the_middle_of_a_batch_keeps_it_from_the_commit_log",
        broker=True,
    ),
    Mistake(
        "a backlog of several partitions is read in pieces",
        "spark_sink/query/partial_rows.py",
        "    if way.plan is not None or partitions == 1:\n",
        "    if way.plan is not None or partitions >= 1:\n",
        "tests/spark/test_backlog.py::test_a_partition_ten_hours_behind_loses_nothing_at_first_or_in_a_backlog",
        broker=True,
    ),
    Mistake(
        "the Spark source reads on in a topic made anew",
        "spark_sink/source/place.py",
        "        if self.id and later.id and self.id != later.id:\n",
        "        if self.id and later.id and self.id == later.id + self.id:\n",
        "tests/spark/source/test_format.py::test_a_topic_made_anew_is_refused_with_what_to_do",
        broker=True,
    ),
    Mistake(
        "a stream's first batch begins elsewhere when it runs again",
        "spark_sink/source/planning/planner.py",
        "        first = ends.began if begins.initial else begins.next\n",
        "        first = begins.next\n",
        "tests/spark/source/test_format.py::"
        "test_the_first_batch_begins_where_it_was_planned_however_late_it_runs",
        broker=True,
    ),
    Mistake(
        "an answer of Kafka that lacks a partition is the topic for the Spark source",
        "spark_sink/source/planning/planner.py",
        "        if gone := before.keys() - now.keys():\n",
        "        if gone := now.keys() - now.keys():\n",
        "tests/unit/spark_sink/source/test_planner.py::test_an_answer_that_lacks_a_partition_is_refused_and_not_planned",
    ),
    Mistake(
        "where an added partition begins is looked up anew when its batch runs again",
        "spark_sink/source/planning/planner.py",
        "        known = {**ends.first, **first}\n",
        "        known = {**first}\n",
        "tests/unit/spark_sink/source/test_planner.py::test_where_an_added_partition_begins_is_in_the_plan_and_stays_when_retention_moves_on",
    ),
    Mistake(
        "an event that is too far ahead is summed up",
        "spark_sink/source/partials.py",
        "<= self.max_ahead_ms * 1000",
        "<= self.max_ahead_ms * 1000000",
        "tests/property/spark_sink/test_partials.py::test_partial_rows_are_those_of_plain_python",
    ),
    Mistake(
        "a part of what was read forgets its oldest event as it goes on",
        "spark_sink/source/spans.py",
        "oldest = min((each for each",
        "oldest = max((each for each",
        "tests/property/spark_sink/test_span_parts.py::"
        "test_each_record_is_of_one_part_which_says_how_old_and_how_bad_its_records_are",
    ),
    Mistake(
        "late events are looked for by a watermark in another unit",
        "spark_sink/query/checkpoint.py",
        "each.oldest < self.late_watermark_ms * 1000",
        "each.oldest < self.late_watermark_ms",
        "tests/unit/spark_sink/test_progress.py::test_a_batch_is_narrowed_to_what_may_not_have_been_counted",
    ),
    Mistake(
        "a checkpoint that the kernels began goes on by rows where executors lack Seqmark",
        "spark_sink/query/partial_rows.py",
        "        _require_own_source(sink, lack, began=began)\n",
        "        pass\n",
        "tests/unit/spark_sink/test_ways.py::"
        "test_what_only_our_source_can_read_is_refused_where_executors_lack_it",
    ),
    Mistake(
        "what an aggregate did not count is judged by another reader than what it did",
        "spark_sink/side_output.py",
        "        if self._by_kernels:\n",
        "        if self._by_kernels is None:\n",
        "tests/spark/source/test_partial_rows.py::test_values_that_spark_reads_otherwise_than_the_kernels_are_in_one_place_each",
        broker=True,
    ),
    Mistake(
        "an event that the kernels find late is not written aside",
        "spark_sink/source/judged.py",
        "(time < self._plan.watermark_ms * 1000)",
        "(time < self._plan.watermark_ms)",
        "tests/property/spark_sink/test_partials.py::test_what_is_given_as_uncounted_is_what_the_sums_left_out_and_what_may_be_late",
    ),
    Mistake(
        "Spark reads what verdicts skip",
        "processor/kafka/plain/verdict_log.py",
        "    stays[rows[offsets[rows] == part]] = False\n",
        "    stays[rows[offsets[rows] == part]] = True\n",
        "tests/spark/source/test_verdicts.py::test_by_verdicts_come_the_records_of_the_clean_topic_in_its_order",
        broker=True,
    ),
    Mistake(
        "Spark reads beyond the last range that was judged",
        "processor/kafka/plain/verdict_log.py",
        "                columns, _ = piece.up_to(stop)\n",
        "                columns = piece.columns\n",
        "tests/spark/source/test_verdicts.py::test_what_is_read_ends_where_the_verdicts_end",
        broker=True,
    ),
    Mistake(
        "Spark takes a range whose records are not those that were judged",
        "processor/kafka/plain/verdict_log.py",
        "            if sums == found.sums or (accept_loss and (gone > 0 or same))",
        "            if gone == 0 or (accept_loss and (gone > 0 or same))",
        "tests/spark/source/test_verdicts.py::test_verdicts_that_are_cut_doubled_forged_or_of_another_topic_are_refused",
        broker=True,
    ),
    Mistake(
        "Spark goes on in verdicts behind a gap",
        "processor/kafka/plain/verdict_log.py",
        "            ranges.end = span.start\n",
        "            ranges.end = None\n",
        "tests/spark/source/test_verdicts.py::test_verdicts_that_do_not_go_on_where_a_checkpoint_ended_are_refused",
        broker=True,
    ),
    Mistake(
        "Spark goes on behind offsets that have no verdict",
        "processor/kafka/plain/verdict_log.py",
        "            if not accept_loss and told is not None:\n",
        "            if accept_loss and told is not None:\n",
        "tests/spark/source/test_verdicts.py::test_what_no_verdict_speaks_of_and_what_changed_in_the_source_is_passed_over_when_it_is_accepted",
        broker=True,
    ),
    Mistake(
        "what expired unread counts as what had expired before a stream by verdicts began",
        "spark_sink/source/planning/planner.py",
        "        fresh = begins.initial\n",
        "        fresh = True\n",
        "tests/unit/spark_sink/source/test_verdict_planner.py::test_a_batch_has_the_verdicts_from_one_place_to_the_next_and_the_first_says_what_had_expired",
    ),
    Mistake(
        "an aggregate counts the duplicates of a source whose verdicts say what to skip",
        "schemas/config/aggregate_rules.py",
        'elif "verdicts" not in written and pipeline.get("output") == "verdicts":\n',
        'elif "verdicts" not in written and pipeline.get("output") == "none":\n',
        "tests/unit/config/test_output.py::test_an_aggregate_of_a_source_with_verdicts_says_that_it_reads_by_them",
    ),
    Mistake(
        "a kernel rounds a decimal that has too many places",
        "processor/engine/events/numbers.py",
        "1 <= behind <= scale\n",
        "1 <= behind <= scale + 1\n",
        "tests/spark/source/test_two_ways.py::test_both_ways_agree_on_any_token_for_any_field",
    ),
    Mistake(
        "equal ids go elsewhere after an update",
        "processor/engine/extract/routing.py",
        'ROUTE_KEY = b"seqmark by-id v1"',
        'ROUTE_KEY = b"seqmark by-id v2"',
        "tests/property/wire/test_repartition.py::test_an_id_goes_where_it_went_yesterday",
    ),
    Mistake(
        "records of one partition change their order on the way to another",
        "processor/engine/repartition.py",
        "    for row in range(start, stop):\n        to = target[row]\n",
        "    for row in range(stop - 1, start - 1, -1):\n        to = target[row]\n",
        "tests/property/wire/test_repartition.py::"
        "test_every_record_arrives_once_in_its_ids_partition_in_order_and_as_it_came",
    ),
    Mistake(
        "a record keeps the longer count of headers that it had on its way",
        "processor/engine/repartition.py",
        "        if more > 0:\n",
        "        if more > 1:\n",
        "tests/property/wire/test_repartition.py::test_a_count_of_headers_that_took_a_byte_more_takes_it_no_more",
    ),
    Mistake(
        "a batch goes on as it came though one of its records is edited",
        "processor/wire/encode.py",
        "            clean[edited] = False\n",
        "",
        "tests/property/wire/test_collision_edits.py::"
        "test_only_batches_with_an_edited_record_are_written_again",
    ),
    Mistake(
        "new ids are others after an update",
        "processor/engine/ids/new_ids.py",
        '_PURPOSE = b"seqmark new id"\n',
        '_PURPOSE = b"seqmark new ids"\n',
        "tests/unit/engine/test_new_ids.py::test_a_new_id_is_what_it_was_yesterday",
    ),
    Mistake(
        "two contents of one id get one new id",
        "processor/engine/ids/new_ids.py",
        "absorb(v0, v1, v2, v3, fingerprints[row])",
        "absorb(v0, v1, v2, v3, np.uint64(0))",
        "tests/unit/engine/test_new_ids.py::test_another_id_fingerprint_or_secret_makes_another_new_id",
    ),
    Mistake(
        "an old id becomes a second member of its name",
        "processor/engine/collision_edits.py",
        "(parent == JsonKind.OBJECT) & (member == JsonKind.MISSING)",
        "parent == JsonKind.OBJECT",
        "tests/unit/wire/test_collision_edits.py::test_a_string_of_the_value_is_renamed",
    ),
    Mistake(
        "what a new id makes too large is found out when it is written",
        "processor/wire/quarantine.py",
        "    return rows[np.array(size) + left > limit_bytes]\n",
        "    return rows[:0]\n",
        "tests/property/wire/test_collision_edits.py::"
        "test_what_a_new_id_makes_too_large_is_known_before_the_limit_is_met",
    ),
    Mistake(
        "a variant is owned by the first record of its id",
        "processor/engine/ids/collisions.py",
        "    judged.verdict[row], judged.owner[row] = 1, info[same, OWNER]\n",
        "    judged.verdict[row], judged.owner[row] = 1, info[earliest, OWNER]\n",
        "tests/unit/engine/test_collisions.py::test_a_copy_of_a_variant_is_owned_by_the_first_of_its_content",
    ),
    Mistake(
        "a collision that is dropped is remembered",
        "processor/judges/ids.py",
        "kept=self._dedup.on_collision in PASSING)\n",
        "kept=True)\n",
        "tests/unit/engine/test_collisions.py::test_what_is_not_in_the_sink_is_not_remembered[drop]",
    ),
    Mistake(
        "refresh renews the first record of an id whatever has come",
        "processor/engine/ids/collisions.py",
        "        _renew(table, same, now)\n",
        "        _renew(table, earliest, now)\n",
        "tests/unit/engine/test_collisions.py::"
        "test_refresh_renews_the_variant_with_the_equal_fingerprint_alone",
    ),
    Mistake(
        "a variant that has expired still counts",
        "processor/engine/ids/collisions.py",
        "    if same < 0 or info[same, READING] + window <= now:\n",
        "    if same < 0:\n",
        "tests/unit/engine/test_collisions.py::test_a_variant_expires_for_itself",
    ),
    Mistake(
        "a restart forgets the variants of ids",
        "processor/engine/ids/exact/index.py",
        "                self.collisions.restore(run)\n",
        "                pass\n",
        "tests/unit/engine/test_collisions.py::"
        "test_a_restart_finds_every_variant_and_which_is_the_earliest[local state]",
    ),
    Mistake(
        "a restore makes a renewed variant the latest of its id",
        "processor/engine/ids/collisions.py",
        "        born = np.where(rows.supersedes < 0, number, rows.supersedes)\n",
        "        born = number\n",
        "tests/unit/engine/test_collisions.py::"
        "test_a_restart_finds_every_variant_and_which_is_the_earliest[changelog alone]",
    ),
    Mistake(
        "a note shows a record's own fingerprint as its owner's",
        "processor/engine/ids/collisions.py",
        "        prints.owner[row] = table.fingerprint[earliest]\n",
        "        prints.owner[row] = fingerprint\n",
        "tests/unit/engine/test_collisions.py::"
        "test_a_note_shows_the_fingerprints_of_the_record_and_of_its_owner",
    ),
    Mistake(
        "records of one transaction do not collide",
        "processor/engine/ids/exact/kernels.py",
        "        if prints is not None and known and what != prints.own[row]:\n",
        "        if prints is not None and known and best < begun and what != prints.own[row]:\n",
        "tests/unit/engine/test_collisions.py::test_a_copy_of_a_variant_is_owned_by_the_first_of_its_content",
    ),
    Mistake(
        "what is undone of collisions stays",
        "processor/engine/ids/collisions.py",
        "        self._rebuild(np.arange(meta[COMMITTED]))\n",
        "        self._rebuild(np.arange(meta[COUNT]))\n",
        "tests/unit/engine/test_collisions.py::test_what_is_undone_was_never_remembered_nor_renewed",
    ),
    Mistake(
        "a header that is absent counts as an empty one",
        "processor/engine/extract/fingerprint.py",
        "        length[k, wrong == Fault.HEADER_MISSING] = -1\n",
        "",
        "tests/property/engine/test_fingerprints.py::"
        "test_ids_fingerprints_and_faults_are_those_of_the_naive_model",
    ),
    Mistake(
        "a transaction that hangs is taken for one after the other",
        "processor/worker/standstill.py",
        "held is None or held.stable != stable:",
        "held is None or end > stable:",
        "tests/unit/worker/test_standstill.py::test_one_transaction_ages_while_the_offset_stands_still",
    ),
    Mistake(
        "the metric of readiness stays what it was when something moved last",
        "processor/worker/worker.py",
        "        metrics.ready.set_function(lambda: self.ready)\n",
        "        metrics.ready.set(1)\n",
        "tests/broker/worker/test_worker.py::test_ready_is_said_by_the_metric_as_it_is_when_somebody_asks",
        broker=True,
    ),
    Mistake(
        "code is loaded from a folder that others can write to",
        "processor/paths.py",
        "if found.st_mode & OTHERS_WRITE and not closed else None",
        "if found.st_mode & OTHERS_WRITE and closed else None",
        "tests/unit/engine/test_jit.py::test_a_level_that_others_can_write_to_is_not",
    ),
    Mistake(
        "a restart makes twice the slots of the run before it",
        "processor/engine/ids/exact/bulk_load.py",
        "ids > (size << deep) * FULL:",
        "ids > (size << deep) * (FULL - 0.12):",
        "tests/unit/engine/test_exact_index.py::test_a_restart_makes_the_slots_of_the_run_and_lets_little_wait",
    ),
    Mistake(
        "an interrupted proof ends like one that holds",
        "processor/commands/cli.py",
        "            ctx.exit(EXIT_FAILED)\n",
        "            ctx.exit(EXIT_DONE)\n",
        "tests/unit/commands/test_cli.py::test_an_error_becomes_its_exit_code",
    ),
    Mistake(
        "at least once, offsets are called committed before they are",
        "processor/kafka/transactions/output.py",
        "        await self._membership.commit(self._positions(offsets))\n        between()\n",
        "        between()\n        await self._membership.commit(self._positions(offsets))\n",
        "tests/crash/test_commit_steps.py::"
        "test_at_least_once_the_groups_offset_is_there_when_its_step_is_reached",
        broker=True,
    ),
    Mistake(
        "code is loaded from behind somebody's symbolic link",
        "processor/paths.py",
        "    if stat.S_ISLNK(found.st_mode):\n        return f",
        "    if stat.S_ISLNK(found.st_mode):\n        return None\n        return f",
        "tests/unit/engine/test_jit.py::test_a_level_that_is_a_symbolic_link_is_not",
    ),
    Mistake(
        "what RocksDB makes is readable to others",
        "processor/state/home.py",
        "    os.umask(OTHERS)\n",
        "    os.umask(os.umask(0))\n",
        "tests/broker/worker/test_restart.py::test_local_state_is_closed_to_others_whatever_the_umask_is",
        broker=True,
    ),
    Mistake(
        "nothing assigned is ready, whatever the group's leader sees",
        "processor/worker/worker.py",
        "or self._membership is None or self._membership.unseen():",
        "or self._membership is None:",
        "tests/broker/kafka/test_guarded.py::"
        "test_nothing_is_called_done_or_ready_while_the_groups_leader_does_not_see_the_source",
        broker=True,
    ),
    Mistake(
        "why a slot failed is a traceback, where it was given up before",
        "processor/worker/open_slot.py",
        "            self.failed.exception()\n",
        "",
        "tests/unit/worker/test_slot.py::test_a_slot_that_fails_after_it_was_given_up_leaves_no_traceback",
    ),
    Mistake(
        "a SASL session is left to end",
        "processor/kafka/protocol/connections.py",
        "        if time.monotonic() < self._renew_at_s:\n",
        "        if self._renew_at_s > 0:\n",
        "tests/broker/kafka/test_guarded.py::test_sessions_that_end_abort_nothing[exactly_once]",
        broker=True,
    ),
    Mistake(
        "a topic that is wider than the source is refused",
        "processor/kafka/topics/plan.py",
        "    if there.partitions < wanted.partitions:\n",
        "    if there.partitions != wanted.partitions:\n",
        "tests/unit/kafka/test_topics_grow.py::"
        "test_only_a_topic_that_is_narrower_than_the_source_is_a_problem_and_one_to_wait_for",
    ),
    Mistake(
        "a source that has grown first stops its worker",
        "processor/kafka/topics/ensure.py",
        " for problem in made.problems if problem not in made.narrow]\n",
        " for problem in made.problems]\n",
        "tests/broker/worker/test_worker.py::"
        "test_partitions_of_a_source_that_grew_first_wait_for_the_others_and_lose_nothing",
        broker=True,
    ),
    Mistake(
        "a scope of any length is a scope",
        "processor/engine/extract/scopes.py",
        "        fault[columns.key_length > MOST_SCOPE_BYTES] = Fault.SCOPE_TOO_LARGE\n",
        "",
        "tests/broker/contract/test_topics.py::"
        "test_a_key_above_64_kib_is_no_scope_and_that_counts_before_the_sequence",
        broker=True,
    ),
    Mistake(
        "a receipt that its topic does not take stops the pipeline",
        "processor/wire/receipts.py",
        "            receipt = receipt._replace(keyed=False)\n            yield self._batch(receipt, 0, 1)\n",
        "            pass\n",
        "tests/property/wire/test_receipts.py::"
        "test_a_receipt_that_the_topic_does_not_take_is_written_without_its_records_key_and_says_so",
    ),
    Mistake(
        "what takes long is worked on in the event loop",
        "processor/pipeline/turns.py",
        "            made = await _apart(step) if long else step()\n",
        "            made = step()\n",
        "tests/unit/pipeline/test_turns.py::"
        "test_one_batch_of_very_many_records_is_judged_some_at_a_time_and_apart_from_the_loop",
    ),
    Mistake(
        "between two pieces nothing else has a turn",
        "processor/pipeline/turns.py",
        "            await asyncio.sleep(0)\n",
        "",
        "tests/unit/pipeline/test_turns.py::test_many_batches_are_judged_some_records_a_turn_of_the_loop",
    ),
    Mistake(
        "what was given for a secret key is shown",
        "processor/config/echo.py",
        "        if value is None or _is_secret(path):\n",
        "        if value is None:\n",
        "tests/unit/config/test_echo.py::test_a_secret_is_not_shown",
    ),
    Mistake(
        "a position says where outputs ended with the commit before",
        "processor/pipeline/slot_pipeline.py",
        "            ends = ends_now(partition, self._topics, self._output)\n",
        "            ends, _ = partition.position.ends, ends_now(partition, self._topics, self._output)\n",
        "tests/unit/pipeline/test_marks.py::"
        "test_a_mark_says_how_far_its_commit_had_come_and_where_the_outputs_ended",
    ),
    Mistake(
        "an output by another name ends where the one before did",
        "processor/state/belonging.py",
        "    return then.name_crc == now.name_crc and not then.is_other(now)\n",
        "    return not then.is_other(now)\n",
        "tests/unit/pipeline/test_marks.py::test_where_an_output_that_is_another_by_now_ends_nobody_knows",
    ),
    Mistake(
        "a search takes the first mark of a fetch for the one before",
        "processor/inspection/marks.py",
        "            return Neighbours(found[higher - 1].mark, found[higher].mark)\n",
        "            return Neighbours(found[0].mark, found[higher].mark)\n",
        "tests/property/inspection/test_marks_model.py::"
        "test_the_frames_are_those_that_reading_everything_gives",
    ),
    Mistake(
        "marks do not tell what was taken in before a reset from what was taken in after it",
        "processor/reset/run.py",
        "    position = replace(state.position, ends=origin.ends, since_ms=origin.reset_ms)\n",
        "    position = replace(state.position, ends=origin.ends)\n",
        "tests/broker/inspection/test_marks.py::"
        "test_between_two_marks_stands_what_became_of_the_records_between_them_through_kills_and_resets",
        broker=True,
    ),
    Mistake(
        "what the open transaction has renewed is not known to a look-up",
        "processor/judges/committed.py",
        "    replaced: NDArray[np.int64] = before[(before >= meta[FLOOR]) & (before < meta[STAGED])]\n",
        "    replaced: NDArray[np.int64] = before[(before >= meta[STAGED]) & (before < meta[STAGED])]\n",
        "tests/property/judges/test_remembered.py::test_what_is_remembered_is_what_is_committed[True]",
    ),
    Mistake(
        "a certificate that was broken covers what it read",
        "processor/inspection/explain/covered.py",
        "    if not note.proved:\n",
        "    if not note.proved and not note.spans:\n",
        "tests/unit/inspection/explain/test_covered.py::test_a_certificate_that_was_broken_covers_nothing",
    ),
    Mistake(
        "what a certificate covered is noted in another user's folder",
        "processor/verify/noted.py",
        "    if owner != os.geteuid():\n",
        "    if owner < 0:\n",
        "tests/unit/verify/test_noted.py::test_a_folder_of_another_user_is_left_alone",
    ),
    Mistake(
        "a number is found where a string was asked for",
        "processor/judges/asked_id.py",
        "        return AskedPart(IdTextForm.NUMBER, text.encode())\n",
        "        return AskedPart(IdTextForm.STRING, text.encode())\n",
        "tests/property/inspection/test_wanted.py::test_by_id_exactly_the_records_with_it_are_found",
    ),
    Mistake(
        "in a simulation an id expires one millisecond late",
        "processor/engine/ids/window_grid.py",
        "                if now >= ends:\n",
        "                if now > ends:\n",
        "tests/unit/inspection/simulate/test_windows.py::"
        "test_what_fits_is_predicted_as_a_naive_model_judges_it",
    ),
    Mistake(
        "a simulation states an interval that half of the samples miss",
        "processor/inspection/simulate/windows.py",
        "_SIGMAS = 2.576\n",
        "_SIGMAS = 0.5\n",
        "tests/unit/inspection/simulate/test_windows.py::"
        "test_the_truth_lies_within_the_interval_for_at_least_95_of_100_seeds[hot_id-4000]",
    ),
    Mistake(
        "records that are thinned out take copies of sampled ids with them",
        "processor/inspection/audit/rows.py",
        "        return np.flatnonzero(hashes.view(np.uint64) >> np.uint64(64 - self.level) == 0)\n",
        "        return np.flatnonzero(hashes.view(np.uint64) >> np.uint64(64 - self.level) == 0)[1:]\n",
        "tests/unit/inspection/simulate/test_windows.py::"
        "test_a_sample_never_has_more_rows_than_its_bound_and_keeps_all_records_of_its_ids",
    ),
    Mistake(
        "a simulation with a route goes by the clocks of the source's partitions",
        "processor/engine/ids/sink_clocks.py",
        "        now = max(clock[to], timestamp[row])\n",
        "        now = max(clock[to], reading[row])\n",
        "tests/unit/inspection/simulate/test_route_clock.py::"
        "test_what_fits_is_predicted_as_a_naive_model_judges_it_by_the_clock_of_the_sinks_partition",
    ),
    Mistake(
        "a simulation takes filters to forget each id by itself",
        "processor/engine/ids/window_grid.py",
        "        latest = (latest // bucket + 1) * bucket - 1\n",
        "        latest = latest - 1\n",
        "tests/unit/inspection/simulate/test_windows.py::test_filters_are_predicted_to_forget_bucket_by_bucket",
    ),
    Mistake(
        "the grid says of filters what exact ids catch",
        "processor/inspection/simulate/grid.py",
        "            found = outcome.filtered[n] if by_bucket else row\n",
        "            found = row\n",
        "tests/unit/inspection/simulate/test_recommend.py::test_the_grid_has_what_filters_catch_in_their_rows",
    ),
    Mistake(
        "a simulation gives up the configured reorder window where scopes take too much",
        "processor/inspection/simulate/judging.py",
        "            others = [n for n, window in enumerate(self._windows) if window != self._configured]\n",
        "            others = [n for n, window in enumerate(self._windows) if window != 16_384]\n",
        "tests/unit/inspection/simulate/test_scopes_bound.py::"
        "test_long_reorder_windows_are_left_out_and_the_configured_one_judges_all_records",
    ),
    Mistake(
        "a failure of the escape gauge ends the worker",
        "processor/judges/escapes/gauge.py",
        "            self._densify()\n        except Exception as error:",
        "            self._densify()\n        except ValueError as error:",
        "tests/unit/pipeline/test_escapes.py::test_whatever_fails_switches_the_gauge_off_and_is_not_raised",
    ),
    Mistake(
        "the least of what escapes takes each duplicate for one that was drawn by itself",
        "processor/judges/escapes/gauge.py",
        "(2 * before + 1)",
        "(0 * before + 1)",
        "tests/unit/pipeline/test_escapes.py::"
        "test_the_least_holds_where_few_ids_escape_dozens_of_times[5-100-3]",
    ),
    Mistake(
        "a sample is thinned from the middle of a run of entries on",
        "processor/engine/ids/passes.py",
        "    while keys[free] != np.uint64(0):\n        free += 1\n",
        "    pass\n",
        "tests/unit/engine/test_passes.py::"
        "test_what_is_left_in_a_table_is_found_where_runs_of_entries_had_holes_made_in_them[0]",
    ),
    Mistake(
        "a partition that is judged again has the ids of others in the sample forgotten",
        "processor/judges/escapes/gauge.py",
        "            self._cover(partition, span)\n",
        "            self._cover(partition, span)\n            self._move_clock(partition, span.to_ms)\n",
        "tests/unit/pipeline/test_escapes.py::"
        "test_a_partition_that_runs_ahead_does_not_have_the_ids_of_the_others_forgotten",
    ),
    Mistake(
        "what escaped is weighed by how thin the sample is now",
        "processor/judges/escapes/gauge.py",
        "np.exp2(seen_at[known].astype(np.float64))",
        "np.exp2(np.full(int(known.sum()), self.level, np.float64))",
        "tests/unit/pipeline/test_escapes.py::test_pairs_count_by_the_sample_that_saw_both",
    ),
    Mistake(
        "what a run before a reset has judged is taken for judged by that of now",
        "processor/inspection/explain/case.py",
        "        return self.low <= self.offset < self.high\n",
        "        return 0 <= self.offset < self.high\n",
        "tests/broker/inspection/test_explain.py::"
        "test_after_a_reset_the_latest_run_counts_and_earlier_ones_are_named",
        broker=True,
    ),
    Mistake(
        "an output that was made anew is taken for the one that was written to",
        "processor/inspection/explain/lookup/eras.py",
        "            if then.made_anew(now):\n",
        "            if then.made_anew(now) and not topic:\n",
        "tests/broker/inspection/test_explain_replaced.py::"
        "test_what_passed_to_a_sink_that_was_made_anew_says_so_and_later_records_are_found_in_the_new_one",
        broker=True,
    ),
    Mistake(
        "a reset does not say how far the state before it had come, and into which topics",
        "processor/reset/run.py",
        "        marked = [each for each in (state.before, position) if each is not None]\n",
        "        marked = [position]\n",
        "tests/broker/inspection/test_explain_replaced.py::"
        "test_what_passed_after_the_last_mark_to_a_sink_that_was_made_anew_is_known_to_have_passed",
        broker=True,
    ),
    Mistake(
        "receipts that somebody has copied count for those that the worker wrote",
        "processor/inspection/explain/lookup/finder.py",
        "            found = frame.of(wanted, end)\n",
        "            await frame.read(limits.stable)\n            found = frame.of(wanted)\n",
        "tests/broker/inspection/test_explain_shared.py::"
        "test_receipts_that_somebody_has_copied_behind_each_other_mislead_nobody[True]",
        broker=True,
    ),
    Mistake(
        "a receipt of another pipeline over the same source is taken for its own",
        "processor/wire/receipt_values.py",
        "    begin = re.escape(receipt_prefix(pipeline, topic))\n",
        "    begin = re.escape(receipt_prefix(pipeline, topic))"
        ".replace(b':\"' + pipeline.encode(), b':\"[^\"]*', 1)\n",
        "tests/broker/inspection/test_explain_shared.py::"
        "test_receipts_of_another_pipeline_over_the_same_source_are_skipped_and_named",
        broker=True,
    ),
    Mistake(
        "equal records that passed before one are not counted",
        "processor/inspection/explain/lookup/clean.py",
        "            earlier += did == sought.form\n",
        "            earlier += did is None\n",
        "tests/broker/inspection/test_explain.py::test_equal_records_that_passed_are_told_apart_by_their_order",
        broker=True,
    ),
    Mistake(
        "a record with a receipt and a copy in quarantine is no contradiction",
        "processor/inspection/explain/verdict.py",
        "copy is not None and receipt[1].verdict != COLLISION:\n",
        "copy is not None and receipt[1].verdict == Outcome.PASSED:\n",
        "tests/broker/inspection/test_explain.py::test_topics_that_contradict_the_rules_are_named",
        broker=True,
    ),
    Mistake(
        "numbers out of records are in an answer that must not show them",
        "processor/inspection/explain/story.py",
        '            "sentence": self.sentence if contents else self.bare_sentence,\n',
        '            "sentence": self.sentence,\n',
        "tests/broker/inspection/test_explain.py::test_contents_are_left_out_where_they_may_not_be_shown",
        broker=True,
    ),
    Mistake(
        "while a pipeline observes, what a tag would make too large is remembered",
        "processor/pipeline/piece.py",
        "        collisions.mark_too_large(self._encoder, piece, evidence, self._topics.sink_limit_bytes)\n",
        "        if not passage.observes:\n"
        "            collisions.mark_too_large(self._encoder, piece, evidence, "
        "self._topics.sink_limit_bytes)\n",
        "tests/property/judges/test_observed_slots.py::"
        "test_it_remembers_what_it_would_have_and_what_it_keeps_back_passes_as_it_came",
    ),
    Mistake(
        "what was observed on its way through a route is kept back once the pipeline drops",
        "processor/pipeline/piece.py",
        "& (kind.upstream is not None)\n",
        "& (kind.upstream is not None and kind.hop.pipeline.observe)\n",
        "tests/unit/pipeline/test_observe.py::"
        "test_what_the_first_hop_has_let_by_passes_the_second_whatever_the_config_says_by_then",
    ),
    Mistake(
        "a certificate does not miss what was observed in the sink",
        "processor/verify/sink.py",
        '            why = f"is {known.verdict.label}, passes as the pipeline observed"\n',
        "            return\n",
        "tests/property/verify/test_observed_certificate.py::"
        "test_no_change_of_any_output_goes_unseen_in_either_part",
    ),
    Mistake(
        "nobody misses the last commit of a table at rest",
        "spark_sink/batch/table/commits.py",
        "    head = _read_head(layout)",
        "    head = None",
        "tests/spark/batch/test_safety.py::test_a_last_commit_that_is_gone_or_changed_is_refused",
    ),
    Mistake(
        "two input files at rest of one name, size and time are taken for one",
        "spark_sink/batch/inputs.py",
        "    known = sorted([str(each.path), ",
        "    known = sorted([each.stamp.name, ",
        "tests/spark/batch/test_inputs.py::test_files_of_one_name_size_and_time_in_two_folders_are_two",
    ),
    Mistake(
        "what a dead run at rest has left is removed with whatever lies beside it",
        "spark_sink/batch/leftovers.py",
        " and DATA_NAME.fullmatch(name):\n",
        ":\n",
        "tests/spark/batch/test_safety.py::test_files_that_are_not_ours_are_left_alone",
    ),
    Mistake(
        "results at rest are not made again when the rules have changed",
        "spark_sink/batch/plan.py",
        "-by-{_rules(batch)}-from-",
        "-from-",
        "tests/spark/batch/test_safety.py::test_what_is_made_again_by_other_rules_is_made_again",
    ),
    Mistake(
        "a late row at rest is judged by what came before it alone",
        "processor/engine/rest/judge.py",
        "else old_alike[k]\n",
        "else nowhere\n",
        "tests/property/engine/rest/test_judge_model.py::"
        "test_a_late_row_meets_what_an_earlier_run_has_kept_after_it_inside_the_window[False]",
    ),
    Mistake(
        "rows at rest of one time are judged in the order in which they come",
        "processor/engine/rest/judge.py",
        "    keys = rows.place[some], some < new,",
        "    keys = some, some < new,",
        "tests/property/engine/rest/test_judge_model.py::"
        "test_every_run_is_judged_as_the_naive_model_has_it_in_any_order_of_its_rows",
    ),
    Mistake(
        "a number in a column is hashed as text",
        "processor/engine/rest/columns.py",
        "cls(IdTextForm.NUMBER, valid, *_decimals(valid, owned(values, np.int64)))",
        "cls(IdTextForm.STRING, valid, *_decimals(valid, owned(values, np.int64)))",
        "tests/property/engine/rest/test_row_ids.py::test_columns_have_the_ids_of_records_with_these_values",
    ),
    Mistake(
        "a backfill that is not whole is a state",
        "processor/state/restore.py",
        "    if unfinished is not None:\n",
        "    if False and unfinished is not None:\n",
        "tests/property/state/test_backfill_model.py::"
        "test_a_backfill_that_is_not_whole_is_refused_by_its_name_and_found_by_who_goes_on",
    ),
    Mistake(
        "a load that goes on begins once more",
        "processor/reset/backfill/hop_load.py",
        "            return replace(step, marked=True, done=progress.blocks)\n",
        "            return replace(step, marked=True)\n",
        "tests/broker/backfill/test_backfill.py::"
        "test_backfill_and_worker_are_a_worker_over_all_of_it_through_kills",
        broker=True,
    ),
    Mistake(
        "a load marks the hop that judges alone",
        "processor/reset/backfill/load.py",
        "        for hop, steps in ((self._first, plan.firsts), (self._last, plan.steps)):\n",
        "        for hop, steps in ((self._last, plan.steps),):\n",
        "tests/broker/backfill/test_route_backfill.py::"
        "test_a_load_that_is_killed_goes_on_and_a_worker_refuses_both_hops_until_it_is_whole",
        broker=True,
    ),
    Mistake(
        "a load does not fence the hop that reads the source",
        "processor/reset/backfill/load.py",
        "        for hop in hops:\n",
        "        for hop in hops[-1:]:\n",
        "tests/broker/backfill/test_route_backfill.py::"
        "test_a_load_that_is_killed_goes_on_and_a_worker_refuses_both_hops_until_it_is_whole",
        broker=True,
    ),
    Mistake(
        "the hop that reads the source begins before all ids are there",
        "processor/reset/backfill/load.py",
        "            for step in left:\n                await self._last.state(step)\n"
        "            for step in plan.firsts:\n"
        "                if self._first is not None and not step.whole:\n"
        "                    await self._first.state(step)\n",
        "            for step in plan.firsts:\n"
        "                if self._first is not None and not step.whole:\n"
        "                    await self._first.state(step)\n"
        "            for step in left:\n                await self._last.state(step)\n",
        "tests/broker/backfill/test_route_backfill.py::"
        "test_a_load_that_is_killed_goes_on_and_a_worker_refuses_both_hops_until_it_is_whole",
        broker=True,
    ),
    Mistake(
        "a load marks what a worker has begun since the look",
        "processor/reset/backfill/load.py",
        "                if producer.next_offset(*tp) != end + written[tp]:\n",
        "                if False and producer.next_offset(*tp) != end + written[tp]:\n",
        "tests/broker/backfill/test_route_backfill.py::"
        "test_a_load_is_given_up_where_a_worker_has_written_to_either_hop_since_the_look",
        broker=True,
    ),
    Mistake(
        "a backfill of a routed pipeline begins though records are on their way",
        "processor/reset/backfill/hop_load.py",
        "        if found is not None or limits.stable < limits.end:\n",
        "        if limits.stable < limits.end:\n",
        "tests/unit/reset/test_hop_load.py::test_it_is_refused_where_a_worker_has_sent_records_or_may_have",
    ),
    Mistake(
        "the ids of a topic are sent elsewhere than the worker sends them",
        "processor/reset/backfill/intake/topic.py",
        "        self._router = make_id_extractor(dedup, ROUTE_KEY)\n",
        "        self._router = make_id_extractor(dedup, secret)\n",
        "tests/broker/backfill/test_route_backfill.py::"
        "test_backfill_and_routed_worker_are_a_routed_worker_over_all_of_it_at_any_cut",
        broker=True,
    ),
    Mistake(
        "the ids of rows are sent elsewhere than the worker sends them",
        "processor/engine/rest/routing.py",
        "    hash_ids(routed, words_of_key(ROUTE_KEY))\n",
        "    hash_ids(routed, words_of_key(bytes(16)))\n",
        "tests/property/engine/rest/test_routing.py::"
        "test_columns_and_lines_go_where_the_records_of_their_ids_go",
    ),
    Mistake(
        "the renamed rows of a routed history are sent where their new ids go",
        "spark_sink/backfill/tables.py",
        "    by_id = plan.route is not None or columns.key in {each.column for each in columns.id}\n",
        "    by_id = columns.key in {each.column for each in columns.id}\n",
        "tests/spark/batch/backfill/test_route.py::"
        "test_of_a_clean_table_the_old_id_of_a_renamed_row_says_where_it_goes",
        broker=True,
    ),
    Mistake(
        "what a backfill brought is expired by the clock of its last record alone",
        "processor/reset/backfill/staging.py",
        "    alive = np.flatnonzero(reading_ms > clock_ms - window_ms)\n",
        "    alive = np.flatnonzero(reading_ms >= clock_ms)\n",
        "tests/property/state/test_backfill_model.py::test_backfill_and_worker_are_a_worker_over_all_of_it",
    ),
    Mistake(
        "a reset makes a state without what a backfill brought",
        "processor/reset/decide.py",
        "    if known.backfill:\n",
        "    if False and known.backfill:\n",
        "tests/unit/reset/test_reset.py::test_what_cannot_be_is_refused_with_what_could",
    ),
    Mistake(
        "a certificate takes a state that began with a backfill for an empty one",
        "processor/verify/span.py",
        "        if history.known_from <= self.known_from and not _brought(history):\n",
        "        if history.known_from <= self.known_from:\n",
        "tests/unit/verify/test_span.py::test_what_a_backfill_brought_is_trusted_by_receipts_that_say_enough",
    ),
    Mistake(
        "what a backfill has brought of scopes overwrites what has changed since",
        "processor/state/scope_log.py",
        "            rest = self.scopes.apply(columns, track=True)\n",
        "            rest = self.scopes.apply(columns, track=True)\n"
        "            for key, value in columns.items(brought):\n"
        '                take_block(self.scopes, key, value or b"", track=True)\n',
        "tests/property/state/test_sequence_backfill_model.py::"
        "test_what_has_changed_since_stands_above_what_a_backfill_has_brought_though_it_is_read_at_once",
    ),
    Mistake(
        "the local state lacks what a backfill has brought of scopes",
        "processor/state/scope_log.py",
        'take_block(self.scopes, key, value or b"", track=True)\n',
        'take_block(self.scopes, key, value or b"", track=False)\n',
        "tests/property/state/test_sequence_backfill_model.py::"
        "test_a_history_is_known_from_the_changelog_and_from_the_local_state_with_its_epochs",
    ),
    Mistake(
        "a history's epochs are all the same",
        "processor/reset/backfill/fold.py",
        "    epoch = rows.epoch if rows.epoch.size else whole\n",
        "    epoch = whole\n",
        "tests/property/state/test_sequence_backfill_model.py::"
        "test_a_history_is_known_from_the_changelog_and_from_the_local_state_with_its_epochs",
    ),
    Mistake(
        "a certificate begins a state of sequences empty, whatever a backfill has brought",
        "processor/verify/certificate.py",
        "    if span.brought:\n",
        "    if False and span.brought:\n",
        "tests/broker/backfill/test_sequence_backfill.py::"
        "test_backfill_and_worker_are_a_worker_over_all_of_it_whatever_the_scope",
        broker=True,
    ),
    Mistake(
        "a reset leaves out what a backfill has brought of scopes",
        "processor/reset/state.py",
        "    return tuple(await read_brought(changelog, limits.start, limits.stable))\n",
        "    return ()\n",
        "tests/broker/backfill/test_sequence_backfill.py::"
        "test_backfill_and_worker_are_a_worker_over_all_of_it_whatever_the_scope",
        broker=True,
    ),
    Mistake(
        "what is believed of a backfill counts with what else is",
        "processor/verify/partition.py",
        "receipts.trusted - before - (receipts.backfilled - brought)",
        "receipts.trusted - before",
        "tests/unit/verify/test_unproved.py::test_what_is_believed_of_a_backfill_is_counted_apart",
    ),
    Mistake(
        "what the stream has in a header is hashed as a member of a line",
        "processor/engine/rest/json_rows.py",
        "            plain.form[plain.form != IdTextForm.NONE] = IdTextForm.BYTES\n",
        "            pass\n",
        "tests/property/engine/rest/test_row_ids.py::"
        "test_texts_of_lines_stand_for_the_bytes_of_headers_and_keys",
    ),
    Mistake(
        "an id that copies renew is remembered from its first copy on",
        "processor/reset/backfill/prepare.py",
        '            times = -rows["time"] if self._renewed else rows["time"].copy()\n',
        '            times = rows["time"].copy()\n',
        "tests/property/state/test_backfill_model.py::"
        "test_an_id_that_copies_renew_is_remembered_by_its_last_one",
    ),
    Mistake(
        "what is staged of another history is loaded",
        "processor/reset/backfill/intake/folder.py",
        "        if note is None or self.difference():\n",
        "        if note is None:\n",
        "tests/unit/reset/test_backfill_folder.py::test_what_is_staged_is_found_again_by_the_same_history_only",
    ),
    Mistake(
        "ids of a topic are remembered by the records' own times",
        "processor/reset/backfill/intake/topic.py",
        "ids.hash[good], reading_ms[good]",
        "ids.hash[good], columns.timestamp[good]",
        "tests/spark/batch/backfill/test_backfill.py::"
        "test_a_topic_is_a_history_and_the_source_itself_up_to_the_cut",
        broker=True,
    ),
    Mistake(
        "the source is its own history beyond the cut",
        "processor/commands/spark/backfill_prepare.py",
        "            stops = {number: min(stops[number], cuts[number]) for number in stops}\n",
        "            pass\n",
        "tests/spark/batch/backfill/test_backfill.py::"
        "test_a_topic_is_a_history_and_the_source_itself_up_to_the_cut",
        broker=True,
    ),
    Mistake(
        "an archive of the source is taken beyond the cut",
        "spark_sink/backfill/hashed.py",
        "        some = np.flatnonzero(good & ~beyond)\n",
        "        some = np.flatnonzero(good)\n",
        "tests/spark/batch/backfill/test_backfill.py::test_an_archive_of_the_source_is_taken_up_to_the_cut_only",
        broker=True,
    ),
    Mistake(
        "the hashes of a clean table are taken without its key",
        "processor/commands/spark/backfill_prepare.py",
        "        secret = table.key\n",
        "        pass\n",
        "tests/spark/batch/backfill/test_backfill.py::"
        "test_the_clean_table_of_a_batch_is_a_history_by_its_own_hashes",
        broker=True,
    ),
    Mistake(
        "a row with a new id is of the partition of that",
        "spark_sink/backfill/tables.py",
        "    return pc.coalesce(old, key)\n",
        "    return key\n",
        "tests/spark/batch/backfill/test_tables.py::"
        "test_a_row_with_a_new_id_is_of_the_partition_that_its_old_one_was_sent_to",
        broker=True,
    ),
    Mistake(
        "all files in the folder of a clean table in a lake are the history",
        "spark_sink/backfill/job.py",
        "    return [str(layout.file(each.path)) for each in counting]\n",
        '    return [str(each) for each in layout.output.rglob("*.parquet")]\n',
        "tests/spark/batch/backfill/test_tables.py::"
        "test_of_a_clean_table_in_a_lake_the_files_that_its_log_names_are_the_history",
        broker=True,
    ),
    Mistake(
        "all files in the folder of a Delta table are the history",
        "spark_sink/backfill/job.py",
        '            return HistoryFiles(find_delta_inputs(spark, [path], "history")[0], [])\n',
        '            every = Path(path).glob("*.parquet")\n'
        "            return HistoryFiles(in_order(stamped(each, each.name) for each in every), [])\n",
        "tests/spark/batch/backfill/test_tables.py::test_a_delta_table_is_a_history_as_it_is_now",
        broker=True,
    ),
    Mistake(
        "a backfill of sequences that is loaded is taken for the state of a worker",
        "processor/reset/backfill/intake/looks.py",
        "sequences=dedup is None",
        "sequences=False",
        "tests/broker/backfill/test_sequence_history.py::"
        "test_what_is_loaded_is_not_loaded_again_and_no_other_history_under_its_name",
        broker=True,
    ),
    Mistake(
        "a run commits over another",
        "spark_sink/batch/table/layout.py",
        "        os.link(hidden, file)\n",
        "        file.unlink(missing_ok=True)\n        os.link(hidden, file)\n",
        "tests/spark/batch/test_safety.py::test_who_passes_the_lock_still_cannot_commit_over_another",
    ),
    Mistake(
        "a run that makes results again looks its ids up in what it removes",
        "spark_sink/batch/job.py",
        " if each.path not in gone]",
        "]",
        "tests/spark/batch/test_runs.py::"
        "test_rows_are_judged_as_the_contract_says_whatever_the_runs[ids-parquet]",
    ),
    Mistake(
        "ids of a table are dealt out by another part of the hash than new ones",
        "spark_sink/batch/tasks/probe.py",
        "    bucket = rows[:, LOW] & (plan.buckets - 1)\n",
        "    bucket = rows[:, LOW + 1] & (plan.buckets - 1)\n",
        "tests/spark/batch/test_runs.py::"
        "test_rows_are_judged_as_the_contract_says_whatever_the_runs[ids-parquet]",
    ),
    Mistake(
        "rows of one time are judged in the order in which files are given",
        "spark_sink/batch/inputs.py",
        "key=lambda each: (each.name, each.stamp.name, str(each.path))",
        "key=lambda _: 0",
        "tests/spark/batch/test_runs.py::"
        "test_rows_are_judged_as_the_contract_says_whatever_the_runs[ids-parquet]",
    ),
    Mistake(
        "rows of the day before are not looked up, though the window reaches them",
        "spark_sink/batch/tasks/probe.py",
        "    reach = -(-window_us // DAY_US)\n",
        "    reach = 0\n",
        "tests/spark/batch/test_runs.py::"
        "test_rows_are_judged_as_the_contract_says_whatever_the_runs[ids-parquet]",
    ),
    Mistake(
        "an input that has changed while it was read is committed",
        "spark_sink/batch/job.py",
        "        inputs.require_unchanged()\n",
        "",
        "tests/spark/batch/test_safety.py::test_an_input_that_changes_while_it_is_read_is_not_committed",
    ),
    Mistake(
        "a member of an object at rest whose type has changed is taken on",
        "spark_sink/batch/rows/schema.py",
        "        if grown is None:\n            return None\n",
        "        if grown is None:\n            grown = each.type\n",
        "tests/spark/batch/test_inputs.py::"
        "test_objects_get_new_members_and_a_member_whose_type_has_changed_is_refused_with_both",
    ),
    Mistake(
        "nobody tells of dates at rest that get fewer rows than they had",
        "spark_sink/batch/tasks/tally.py",
        "again[date] < rows",
        "again[date] > rows",
        "tests/spark/batch/test_runs.py::test_a_date_that_is_made_again_without_all_of_its_inputs_is_told_of",
    ),
    Mistake(
        "rows of a table at rest are looked up by half of their hash",
        "spark_sink/batch/tasks/probe.py",
        '    wanted = ["seqmark_high", "seqmark_time"]\n',
        '    wanted = ["seqmark_time"]\n',
        "tests/spark/batch/test_runs.py::"
        "test_rows_are_judged_as_the_contract_says_whatever_the_runs[ids-parquet]",
    ),
    Mistake(
        "a page of a table at rest is taken as it stands, whatever its checksum is",
        "spark_sink/batch/rows/parquet_rows.py",
        "page_checksum_verification=True",
        "page_checksum_verification=False",
        "tests/unit/spark_sink/batch/test_probe.py::test_a_page_with_a_bit_that_has_changed_is_not_read",
    ),
    Mistake(
        "of a file whose counts of rows differ the fewest are read",
        "spark_sink/batch/tasks/probe.py",
        "        _require_all(parquet.metadata.num_rows, sum(rows))\n",
        "",
        "tests/unit/spark_sink/batch/test_probe.py::"
        "test_of_a_footer_with_a_bit_that_has_changed_no_row_is_forgotten",
    ),
    Mistake(
        "times of a table at rest are read in whatever unit its footer tells",
        "spark_sink/batch/tasks/probe.py",
        "            if (found[:, TIME] // DAY_US != file.day).any():\n",
        "            if file.day < 0:\n",
        "tests/unit/spark_sink/batch/test_probe.py::"
        "test_of_a_footer_with_a_bit_that_has_changed_no_row_is_forgotten",
    ),
    Mistake(
        "times of remembered rows are taken for within the window that may lie outside",
        "spark_sink/batch/tasks/probe.py",
        "    apart = max(max(days) + 1 - day, day + 1 - min(days))\n",
        "    apart = 0\n",
        "tests/spark/batch/test_runs.py::test_without_receipts_the_same_rows_are_kept[ids-1d]",
    ),
    Mistake(
        "control characters in columns of texts go into fingerprints as they stand",
        "processor/engine/rest/row_texts.py",
        "6 if byte < 32 else 1",
        "1",
        "tests/unit/spark_sink/batch/test_row_json.py::"
        "test_control_characters_and_quotes_are_escaped_as_python_escapes_them",
    ),
    Mistake(
        "a report counts rows of a date that was made again twice",
        "spark_sink/batch/table/summary.py",
        "        for each in snapshot.files[kind]:\n",
        "        for each in [file for commit in snapshot.commits for file in commit.added[kind]]:\n",
        "tests/spark/batch/test_report.py::"
        "test_the_numbers_are_those_of_the_naive_model_also_when_a_date_was_made_again[quarantine]",
    ),
    Mistake(
        "the demo of files at rest does not miss a row that is lost",
        "processor/demo/archive.py",
        "for place, fate in must - found\n",
        "for place, fate in must - must\n",
        "tests/unit/demo/test_archive.py::test_each_mistake_is_named[a row is lost]",
    ),
    Mistake(
        "the commit of a Delta table does not say which of ours it makes count",
        "spark_sink/lake/delta.py",
        "(APPLICATION, change.number)",
        "(APPLICATION, change.number - 1)",
        "tests/spark/batch/test_lakes.py::"
        "test_a_run_that_dies_at_a_step_counts_by_the_tables_own_log_alone[delta-committed]",
    ),
    Mistake(
        "a run takes the commit file of one that died for its own",
        "spark_sink/batch/table/commits.py",
        "        files = [*files[: max(counted.number - 1, 0)], *([] if last is None else [last])]\n",
        "",
        "tests/spark/batch/test_lakes.py::"
        "test_a_run_that_dies_at_a_step_counts_by_the_tables_own_log_alone[delta-put]",
    ),
    Mistake(
        "of two runs that died one after the other the wrong commit file counts",
        "spark_sink/batch/table/commits.py",
        "    if not counted.mark:\n",
        "    if counted.number:\n",
        "tests/spark/batch/test_lakes.py::"
        "test_a_commit_of_a_dead_run_that_lands_late_is_not_taken_for_ones_own[delta-killed]",
    ),
    Mistake(
        "a batch over a topic reads it from its beginning each time",
        "spark_sink/batch/topic/inputs.py",
        "        return max(start, at or 0), max(start, stable)\n",
        "        return start, max(start, stable)\n",
        "tests/spark/batch/test_topics.py::test_each_run_goes_on_where_the_last_one_has_ended",
    ),
    Mistake(
        "a date that is made again from a topic takes the position with it",
        "spark_sink/batch/topic/inputs.py",
        "(min(start, at), at)\n",
        "(min(start, at), stable)\n",
        "tests/spark/batch/test_topics.py::test_a_date_is_made_again_from_the_topic_and_moves_no_position",
    ),
    Mistake(
        "rows are removed whose records retention has taken",
        "spark_sink/batch/topic/again.py",
        "    if not lost:\n",
        "    if lost is not None:\n",
        "tests/spark/batch/test_topics.py::test_a_date_is_made_again_from_the_topic_and_moves_no_position",
    ),
    Mistake(
        "an answer of Kafka that lacks a partition is the topic for a batch",
        "spark_sink/batch/topic/inputs.py",
        "        if gone := self._position.keys() - state.bounds.keys():\n",
        "        if gone := state.bounds.keys() - state.bounds.keys():\n",
        "tests/unit/spark_sink/batch/test_topic_inputs.py::test_an_answer_that_lacks_a_partition_is_no_topic_with_fewer[None]",
    ),
    Mistake(
        "rows are removed whose records compaction has taken",
        "spark_sink/batch/topic/again.py",
        "        if gone.size:\n",
        "        if gone.size > 1:\n",
        "tests/unit/spark_sink/batch/test_again.py::test_a_record_that_compaction_has_removed_from_the_middle_is_not_made_again[rows]",
    ),
    Mistake(
        "a timestamp of no year stops a batch over a topic",
        "spark_sink/batch/topic/staged.py",
        "        fault[self.beyond] = Fault.OUT_OF_RANGE\n",
        "        fault[self.missing] = Fault.OUT_OF_RANGE\n",
        "tests/unit/spark_sink/batch/test_staged.py::test_a_timestamp_that_is_no_date_is_out_of_range_and_the_others_of_its_block_are_read",
    ),
    Mistake(
        "a topic that was created again is taken for the old one by a batch",
        "spark_sink/batch/table/commits.py",
        " and len(known) < 2\n",
        "\n",
        "tests/spark/batch/test_topics.py::test_a_topic_is_known_by_its_id_and_a_run_by_its_topic",
    ),
    Mistake(
        "columns that a Delta input is parted by are null",
        "spark_sink/batch/rows/constants.py",
        "values.get(name)",
        "values.get(path)",
        "tests/spark/batch/test_lakes.py::test_columns_that_a_delta_table_is_parted_by_come_from_its_log",
    ),
    Mistake(
        "whole numbers in the names of folders are texts",
        "spark_sink/batch/rows/constants.py",
        "    if all(_WHOLE.fullmatch(each) for each in found):\n",
        "    if not found:\n",
        "tests/spark/batch/test_inputs.py::test_names_of_folders_are_columns_as_they_are_for_spark",
    ),
    Mistake(
        "what only the names of folders say counts in the fingerprints of a history",
        "spark_sink/backfill/tables.py",
        "    told = [each.name for each in constants if not each.over and each.name not in inside]\n",
        "    told = [each.name for each in constants if each.over and each.name not in inside]\n",
        "tests/unit/spark_sink/batch/test_folders.py::test_a_column_that_only_folders_say_is_not_in_the_fingerprint_of_a_history",
    ),
    Mistake(
        "folders far above an input are columns of its files",
        "spark_sink/batch/rows/constants.py",
        "    for folder in path.parts[first:-1]:\n",
        "    for folder in path.parts[:-1]:\n",
        "tests/unit/spark_sink/batch/test_folders.py::test_two_folders_of_one_name_above_the_input_are_not_refused",
    ),
    Mistake(
        "a run commits over what another program has done to a Delta table meanwhile",
        "spark_sink/lake/delta.py",
        "            transaction.read_whole_table()\n",
        "",
        "tests/spark/batch/test_lakes.py::"
        "test_a_run_is_refused_where_another_program_changes_the_table_meanwhile[delta]",
    ),
    Mistake(
        "a run commits over what another program has done to an Iceberg table meanwhile",
        "spark_sink/lake/iceberg.py",
        "        operations.commit(transaction.startMetadata(), transaction.currentMetadata())\n",
        "        transaction.commitTransaction()\n",
        "tests/spark/batch/test_lakes.py::"
        "test_a_run_is_refused_where_another_program_changes_the_table_meanwhile[iceberg]",
    ),
    Mistake(
        "files of rows that readers of an older version need are removed",
        "spark_sink/batch/leftovers.py",
        "    if keep_rows:\n",
        "    if not keep_rows:\n",
        "tests/spark/batch/test_lakes.py::"
        "test_readers_of_the_format_see_what_counts_and_what_counted_before[delta]",
    ),
    Mistake(
        "files of a dead run are removed while its commit may be on the way into the table's log",
        "spark_sink/batch/leftovers.py",
        "        return 0\n",
        "        pass\n",
        "tests/unit/spark_sink/batch/test_leftovers.py::test_while_a_dead_runs_commit_may_be_on_the_way_into_the_tables_log_its_files_stay[00000002.json]",
    ),
    Mistake(
        "a match of records begins where a block of LZ4 has to end in literals",
        "processor/engine/bytes/lz4_records.py",
        "                    run = min(run, last_end - q)\n",
        "                    run = min(run, stop - q)\n",
        "tests/property/wire/test_lz4_records.py::test_a_block_of_records_inflates_to_them",
    ),
    Mistake(
        "the range of a verdict record overlaps with the one before",
        "processor/pipeline/verdicts.py",
        "        self._base, self._begins = end, False\n",
        "        self._begins = False\n",
        "tests/unit/pipeline/test_verdicts.py::test_what_retention_has_removed_lies_in_the_next_range",
    ),
    Mistake(
        "a verdict record is written behind the changelog",
        "processor/pipeline/slot_pipeline.py",
        """        await self._output.flush()
        reached(CommitStep.OUTPUT, self.name)  # 2
""",
        """        reached(CommitStep.OUTPUT, self.name)  # 2
""",
        "tests/unit/pipeline/test_verdicts.py::"
        "test_the_record_is_acknowledged_with_the_output_before_the_changelog_is_written",
    ),
    Mistake(
        "a pipeline that goes back to verdicts goes on where it wrote the last ones",
        "processor/worker/open_partition.py",
        "        begins = not before.is_same(started.verdicts)\n",
        "        begins = False\n",
        "tests/broker/modes/test_verdicts.py::"
        "test_going_over_to_verdicts_and_back_begins_where_the_state_stands",
        broker=True,
    ),
    Mistake(
        "a certificate takes a verdict record that stands twice",
        "processor/verify/verdicts.py",
        "        if found.base < self._covered:\n",
        "        if found.base < 0:\n",
        "tests/broker/modes/test_verdicts.py::"
        "test_the_certificate_finds_verdicts_that_are_cut_doubled_reordered_or_forged[one stands twice]",
        broker=True,
    ),
    Mistake(
        "a certificate compares verdicts with batches of before they began",
        "processor/verify/verdicts.py",
        "        self._last_batch = begin - 1\n",
        "        self._last_batch = -1\n",
        "tests/unit/verify/test_verdicts.py::"
        "test_what_came_before_a_pipeline_went_over_to_verdicts_is_not_compared_with_them[10]",
    ),
    Mistake(
        "verdicts do not skip what goes to quarantine",
        "processor/pipeline/verdicts.py",
        "        rows = np.flatnonzero(stays)\n",
        "        rows = np.flatnonzero((stays != 0) & (fault == 0))\n",
        "tests/unit/pipeline/test_verdicts.py::"
        "test_the_sink_is_the_source_without_what_is_skipped_whatever_the_batches",
    ),
    Mistake(
        "a reader leaves out what the range before skips",
        "seqmark/consumer.py",
        "        known.skipped = set(current.skipped.tolist())\n",
        "        known.skipped = known.skipped or set(current.skipped.tolist())\n",
        "tests/property/schemas/test_clean_filter.py::"
        "test_what_is_taken_is_the_clean_stream_and_never_ahead_of_the_verdicts",
    ),
    Mistake(
        "a reader does not say that records have expired before it came",
        "seqmark/consumer.py",
        "        self._require(known, current, right=came == right or expired_before)\n",
        "",
        "tests/property/schemas/test_clean_filter.py::"
        "test_a_source_that_is_not_whole_or_another_is_told[missing]",
    ),
    Mistake(
        "a reader that was stopped during a reset goes on where it was",
        "seqmark/consumer.py",
        "        known.begin = known.at = source\n",
        "        known.begin = source\n",
        "tests/property/schemas/test_clean_filter.py::"
        "test_a_reader_that_was_stopped_during_a_reset_reads_again_from_where_it_began[between two]",
    ),
    Mistake(
        "a reader goes on behind verdicts that have expired unread",
        "seqmark/consumer.py",
        " and known.begin is not None and current.base > known.begin:\n",
        " and known.begin is not None and current.base < 0:\n",
        "tests/property/schemas/test_clean_filter.py::test_verdicts_that_have_expired_behind_a_reader_are_told",
    ),
    Mistake(
        "a reader goes on behind offsets that have no verdict",
        "schemas/verdicts/ranges.py",
        "    if was is None or not found.begins or found.base <= was:\n",
        "    if was is None or found.begins or found.base <= was:\n",
        "tests/property/schemas/test_clean_filter.py::test_offsets_that_no_verdict_speaks_of_are_told[running]",
    ),
    Mistake(
        "a clean topic is made of a source that is not the one that was judged",
        "processor/worker/materialize.py",
        "            elif self._checked and sums != found.sums:\n",
        "            elif self._checked and sums.records > found.sums.records:\n",
        "tests/broker/modes/test_verdicts.py::test_materialize_refuses_verdicts_and_sources_that_do_not_fit",
        broker=True,
    ),
    Mistake(
        "a run that writes a clean topic goes beyond the range that was judged",
        "processor/worker/materialize.py",
        "                some = before(piece, cut) if cut < len(piece.columns) else piece\n",
        "                some = piece\n",
        "tests/broker/modes/test_verdicts.py::test_materialize_never_goes_beyond_the_last_range",
        broker=True,
    ),
    Mistake(
        "a clean topic is gone on with that others have written to",
        "processor/worker/materialize.py",
        "        if foreign is not None:\n",
        "        if foreign is not None and foreign < note.end:\n",
        "tests/broker/modes/test_verdicts.py::test_materialize_goes_on_only_into_the_sink_that_it_has_written",
        broker=True,
    ),
    Mistake(
        "a verdict record is taken whose lists contradict each other",
        "schemas/verdicts/record.py",
        "        found.require_sound()\n",
        "",
        "tests/unit/schemas/test_verdicts.py::test_lists_that_contradict_each_other_are_refused",
    ),
    Mistake(
        "all batches in a Delta table have one number",
        "spark_sink/lake/delta.py",
        '.option("txnVersion", batch.number)',
        '.option("txnVersion", 0)',
        "tests/spark/outputs/test_lake_tables.py::"
        "test_a_batch_that_comes_again_is_in_the_table_once_and_one_without_rows_leaves_no_commit[delta]",
    ),
    Mistake(
        "batches in a Delta table are known by their number alone",
        "spark_sink/lake/delta.py",
        '    return f"seqmark-{query}"\n',
        '    return "seqmark"\n',
        "tests/spark/outputs/test_lake_tables.py::"
        "test_a_new_checkpoint_over_rows_is_refused_and_its_first_batch_is_not_taken_for_written[delta]",
    ),
    Mistake(
        "batches in an Iceberg table are known by their number alone",
        "spark_sink/lake/iceberg.py",
        "query is not None and properties.get(QUERY) == query",
        "query is not None and properties.get(BATCH)",
        "tests/spark/outputs/test_lake_tables.py::"
        "test_a_new_checkpoint_over_rows_is_refused_and_its_first_batch_is_not_taken_for_written[iceberg]",
    ),
    Mistake(
        "a driver that was believed dead commits upon what others have committed to an Iceberg table",
        "spark_sink/lake/iceberg.py",
        "        operations.commit(transaction.startMetadata(), transaction.currentMetadata())\n",
        "        transaction.commitTransaction()\n",
        "tests/spark/outputs/test_lake_tables.py::test_a_driver_that_was_believed_dead_adds_nothing[iceberg]",
    ),
    Mistake(
        "a new checkpoint counts again what rows of a table count",
        "spark_sink/outputs/lake.py",
        "if found.last == NO_BATCH and found.holds_rows:",
        "if found.last > NO_BATCH and not found.holds_rows:",
        "tests/spark/outputs/test_lake_tables.py::"
        "test_a_new_checkpoint_over_rows_is_refused_and_its_first_batch_is_not_taken_for_written[delta]",
    ),
    Mistake(
        "a table that was made again is written on",
        "spark_sink/outputs/lake.py",
        "if found.last < noted:",
        "if NO_BATCH < found.last < noted:",
        "tests/spark/outputs/test_lake_tables.py::"
        "test_a_table_that_is_gone_or_was_made_again_is_refused[iceberg]",
    ),
    Mistake(
        "a commit to an Iceberg table whose answer is lost is taken for refused",
        "spark_sink/lake/iceberg.py",
        "        if properties.get(QUERY) == batch.query and properties.get(ATTEMPT) == attempt:\n",
        "        if False:\n",
        "tests/spark/outputs/test_lake_tables.py::test_a_commit_whose_answer_is_lost_is_in_and_keeps_its_files",
    ),
    Mistake(
        "two new queries write to one Delta table",
        "spark_sink/lake/delta.py",
        "        if owner is not None:\n",
        "        if False:\n",
        "tests/spark/outputs/test_lake_tables.py::"
        "test_of_two_new_queries_that_look_at_once_one_gets_a_delta_table",
    ),
    Mistake(
        "the zone of the session says in which part of a table a row is",
        "spark_sink/outputs/lake.py",
        '"spark.sql.session.timeZone", "UTC"',
        '"spark.sql.session.seqmark", "UTC"',
        "tests/spark/outputs/test_lake_tables.py::"
        "test_dates_of_parts_are_utc_whatever_the_zone_of_the_session[iceberg]",
    ),
    Mistake(
        "a record passes by its verdict record whatever its receipt says",
        "processor/inspection/explain/verdict.py",
        '            if not alone and not (story.observed or story.grounds.action == action == "pass"):\n',
        "            if False:\n",
        "tests/broker/modes/test_verdicts.py::test_explain_finds_verdicts_that_contradict_the_other_topics",
        broker=True,
    ),
    Mistake(
        "a reader goes on in a topic of verdicts that was made anew",
        "seqmark/consumer.py",
        "        if found.base < begin and not found.begins:\n",
        "        if False:\n",
        "tests/property/schemas/test_clean_filter.py::"
        "test_a_topic_of_verdicts_made_anew_or_expired_behind_a_reset_is_told_by_where_it_goes_on",
    ),
    Mistake(
        "a stream whose verdicts have all expired goes on wherever they begin anew",
        "processor/kafka/plain/verdict_log.py",
        "        forgotten = span.start == NOWHERE and span.first > 0 and not span.fresh\n",
        "        forgotten = False\n",
        "tests/spark/source/test_verdicts.py::"
        "test_a_partition_whose_verdicts_have_all_expired_goes_on_where_they_do_and_not_where_they_begin_anew",
        broker=True,
    ),
    Mistake(
        "the marker of a transaction that expires counts as a verdict that was not read",
        "processor/worker/materialize.py",
        "        seen = max(found.offset, note.seen)\n",
        "        seen = found.offset\n",
        "tests/broker/modes/test_verdicts.py::"
        "test_materialize_tells_verdicts_that_expired_unread_from_those_of_a_quiet_partition",
        broker=True,
    ),
    Mistake(
        "a clean topic is gone on with behind offsets that have no verdict",
        "processor/worker/materialize.py",
        "            if not self._skipping.unjudged:\n",
        "            if False:\n",
        "tests/broker/modes/test_verdicts.py::"
        "test_materialize_stops_behind_offsets_that_no_verdict_speaks_of_and_goes_on_if_asked",
        broker=True,
    ),
    Mistake(
        "a fetch that remote storage has not answered yet counts as a gap",
        "processor/kafka/fetch.py",
        "        return [chunk for chunk in chunks if chunk not in unproved] if unproved else chunks\n",
        "        return chunks\n",
        "tests/unit/kafka/test_reader.py::test_remote_storage_that_does_not_answer_in_time_is_no_gap",
    ),
    Mistake(
        "what a partition held that was added is passed over when it has expired",
        "spark_sink/source/planning/planner.py",
        "            if known[number] > 0 and not (begins.initial or self._accept_loss):\n",
        "            if False:\n",
        "tests/unit/spark_sink/source/test_planner.py::"
        "test_an_added_partition_whose_beginning_has_expired_is_refused_or_read_on_where_loss_is_accepted",
    ),
    Mistake(
        "a partition that is given back keeps the records of before",
        "seqmark/consumer.py",
        "        known = self._partitions[partition] = _Partition(VerdictRanges(partition))\n"
        "        known.begin",
        "        known = self._of(partition)\n        known.begin",
        "tests/property/schemas/test_clean_filter.py::"
        "test_a_partition_that_was_taken_and_given_back_begins_anew_where_it_is_resumed",
    ),
    Mistake(
        "a decimal of a history is cut to its whole part",
        "spark_sink/backfill/tables.py",
        "(pa.types.is_decimal(kind) and kind.scale == 0))\n",
        "pa.types.is_decimal(kind))\n",
        "tests/unit/spark_sink/batch/test_folders.py::test_a_decimal_that_is_no_whole_number_is_no_part_of_an_id_and_no_key",
    ),
    Mistake(
        "a row without an offset counts as delivered before the cut",
        "spark_sink/backfill/hashed.py",
        "            self._require_offsets(numbers, block, good)\n",
        "            pass\n",
        "tests/unit/spark_sink/batch/test_folders.py::test_a_row_without_an_offset_is_not_taken_for_one_before_the_cut",
    ),
    Mistake(
        "a model that was written down is read without its limits",
        "schemas/event/written.py",
        "    return list(value) if isinstance(value, tuple) else value\n",
        "    return None if isinstance(value, tuple) else value\n",
        "tests/unit/schemas/test_written_model.py::test_a_model_that_was_written_down_is_read_as_it_was",
    ),
    Mistake(
        "what stands in front of a reset has to be readable",
        "processor/state/restore.py",
        "        except StopError as error:\n            log.info(UNREADABLE, error)\n",
        "        except StopError as error:\n            raise\n",
        "tests/unit/state/test_restore_behind_reset.py::"
        "test_values_that_cannot_be_read_in_front_of_an_origin_do_not_count",
    ),
    Mistake(
        "what cannot be read in a changelog is passed over though no reset stands behind it",
        "processor/state/restore.py",
        "        if self._wrong is not None:\n            raise self._wrong\n",
        "        if False:\n            raise self._wrong\n",
        "tests/unit/state/test_restore_behind_reset.py::"
        "test_values_that_cannot_be_read_stop_the_worker_where_no_origin_comes_behind",
    ),
    Mistake(
        "records that come while a backfill asks for its cut are in nobody's hands",
        "processor/reset/backfill/intake/cuts.py",
        "        limits = await bounds(context.client, sources)\n"
        "        found = await offsets_at(context.client, sources, choice.time_ms)\n",
        "        found = await offsets_at(context.client, sources, choice.time_ms)\n"
        "        limits = await bounds(context.client, sources)\n",
        "tests/unit/reset/test_cuts.py::test_what_comes_while_the_cut_is_asked_for_by_time_lies_behind_it",
    ),
    Mistake(
        "a reset drops a backfill that is not loaded to its end",
        "processor/reset/facts.py",
        '    backfill = "" if head.origin is None else head.origin.backfill\n',
        '    backfill = "" if head.position is None or head.origin is None else head.origin.backfill\n',
        "tests/unit/reset/test_facts.py::"
        "test_a_backfill_that_is_not_loaded_to_its_end_is_given_up_only_if_asked",
    ),
    Mistake(
        "a decimal that is a number in JSON goes through a double",
        "spark_sink/values/fast_parse.py",
        '    text = sql.when(exact, sql.try_variant_get(raw, "$", "string"))\n',
        '    text = sql.when(exact, sql.try_variant_get(raw, "$", "double").cast("string"))\n',
        "tests/spark/test_parse.py::test_of_whatever_is_no_plain_decimal_both_ways_say_the_same",
    ),
    Mistake(
        "a bool that is absent makes room for a field that a closed model does not know",
        "spark_sink/values/fast_parse.py",
        "sql.when(raw, sql.lit(4)).when(~raw, sql.lit(5))",
        "sql.when(raw, sql.lit(4)).otherwise(sql.lit(5))",
        "tests/spark/test_parse.py::"
        "test_a_misspelt_field_is_unknown_also_where_it_is_as_long_as_what_is_absent",
    ),
    Mistake(
        "with latest a late partition begins where the pipeline did before a reset",
        "processor/state/changelog.py",
        "            if head.origin is not None and _is_of(head.position, state_id):\n",
        "            if head.origin is not None:\n",
        "tests/unit/worker/test_open_partition.py::"
        "test_with_latest_a_partition_begins_where_it_ended_when_the_pipeline_began",
    ),
    Mistake(
        "with latest a late partition begins where a topic ended that is not there any more",
        "processor/worker/open_partition.py",
        "            if origin is None or last.topics.source.is_other(source):\n",
        "            if origin is None:\n",
        "tests/unit/worker/test_open_partition.py::"
        "test_with_latest_a_partition_begins_where_it_ended_when_the_pipeline_began",
    ),
    Mistake(
        "a record is measured for the internal topic by another route word than it gets",
        "processor/pipeline/hop_kinds.py",
        "        refs = Refs(least << repartition.PARTITION_BITS | number, word)\n",
        "        refs = Refs(least << repartition.PARTITION_BITS | number, np.zeros_like(word))\n",
        "tests/unit/pipeline/test_hop_kinds.py::"
        "test_at_the_internal_topics_limit_a_record_goes_on_or_is_quarantined_and_nothing_else_happens",
    ),
    Mistake(
        "a record that a slot has to stop before is judged with those that come before it",
        "processor/pipeline/piece.py",
        "if noted.size and noted[0] >= committed else None\n",
        "if noted.size and noted[0] > 1 else None\n",
        "tests/unit/pipeline/test_slot_pipeline.py::"
        "test_before_a_receipt_that_its_topic_does_not_take_all_is_committed_by_the_next_try",
    ),
    Mistake(
        "how far was judged is taken from the group, which brokers forget",
        "processor/inspection/explain/lookup/facts.py",
        "            return None if other else state.last.next_offset, other\n",
        "            pass\n",
        "tests/unit/inspection/explain/test_positions.py::"
        "test_a_group_that_was_forgotten_or_lags_does_not_say_how_far_was_judged",
    ),
    Mistake(
        "a clean position of before a reset is looked for only in what is judged again",
        "processor/inspection/explain/trace.py",
        "            # A run before that of now may have taken in any record.\n"
        "            span = limits.start, limits.stable\n",
        "            span = limits.start, min(limits.stable, case.high)\n",
        "tests/unit/inspection/explain/test_positions.py::"
        "test_a_position_of_before_a_reset_is_traced_back_though_nothing_is_judged_again",
    ),
    Mistake(
        "a simulation sets what passes of all records against what passes of some",
        "processor/inspection/simulate/judging.py",
        "            self._verdicts[: 1 + shared, n] += np.bincount(verdict, minlength=len(Verdict))\n",
        "            self._verdicts[:, n] += np.bincount(verdict, minlength=len(Verdict))\n",
        "tests/unit/inspection/simulate/test_same_records.py::"
        "test_a_scope_that_loses_fewer_of_the_same_records_is_recommended_and_says_of_how_many",
    ),
    Mistake(
        "of a register's values the one is kept that fills it least",
        "processor/engine/events/registers.py",
        "if hashed < least[number]:",
        "if hashed > least[number]:",
        "tests/property/engine/test_registers.py::"
        "test_many_values_of_many_groups_are_kept_as_plain_python_keeps_them",
    ),
    Mistake(
        "a decimal of many digits is hashed with bytes that only repeat its sign",
        "processor/engine/events/registers.py",
        "            while at < 15 and written[at] ==",
        "            while at < 0 and written[at] ==",
        "tests/property/engine/test_registers.py::"
        "test_values_of_every_kind_are_hashed_as_plain_python_hashes_their_bytes",
    ),
    Mistake(
        "an event counts once more with each distinct value of its group",
        "spark_sink/source/partials.py",
        "spread += [rows.of_first(each).fill_null(0) for each in arrays[-3:-1]]",
        "spread += [rows.of_each(each) for each in arrays[-3:-1]]",
        "tests/property/spark_sink/test_partials.py::test_partial_rows_are_those_of_plain_python",
    ),
    Mistake(
        "a socket writes into an answer that was handed on",
        "processor/kafka/protocol/frames.py",
        "                self._answer = np.empty(size, np.uint8).data\n",
        "                kept = vars(self).setdefault('kept', np.empty(1 << 20, np.uint8))\n"
        "                self._answer = kept.data[:size]\n",
        "tests/property/kafka/test_frames.py::test_answers_come_whole_and_in_order_however_they_are_cut",
    ),
    Mistake(
        "an answer goes on behind one that cannot be read",
        "processor/kafka/protocol/frames.py",
        "            self._end(error)\n",
        "            del error\n",
        "tests/property/kafka/test_frames.py::test_nothing_is_taken_behind_an_answer_that_cannot_be_read",
    ),
    Mistake(
        "an answer to another request is taken for the one that was asked for",
        "processor/kafka/protocol/connections.py",
        "        if fetched and request.parse_response_header(answer).correlation_id == number:\n",
        "        if fetched and request.parse_response_header(answer).correlation_id:\n",
        "tests/unit/kafka/test_connections.py::test_a_large_answer_to_something_else_ends_the_connection",
    ),
    Mistake(
        "a bounded batch takes a share of each partition's backlog",
        "spark_sink/source/planning/cut.py",
        "        return {**stops, **self._cut(times)}\n",
        "        share = self._bound / sum(stop - starts[each] for each, stop in left.items())\n"
        "        return {**stops, **{each: min(starts[each] + int((stop - starts[each]) * share) + 1, stop) "
        "for each, stop in left.items()}}\n",
        "tests/property/spark_sink/test_cut.py::"
        "test_what_comes_while_others_are_read_is_late_only_if_it_was_so_when_it_came",
    ),
    Mistake(
        "where no time fits the bound a batch is filled up with later events",
        "spark_sink/source/planning/cut.py",
        "                late, most = time, found\n",
        "                late = time\n",
        "tests/property/spark_sink/test_cut.py::"
        "test_a_backlog_is_read_whole_in_bounded_batches_and_nothing_is_late",
    ),
    Mistake(
        "a stream with a checkpoint that Spark has not told of is cut from its beginning",
        "spark_sink/source/planning/planner.py",
        "        if self._guessed and self._at is None and not begins.initial:\n",
        "        if False:\n",
        "tests/unit/spark_sink/source/test_planner.py::"
        "test_a_trigger_that_asks_for_the_end_first_does_not_go_with_bounded_batches_and_nothing_is_planned",
    ),
    Mistake(
        "pages that a write has appended before it was cut short stay in their file",
        "processor/state/kv/page_files.py",
        "            os.ftruncate(self._files[self._file], self._end)\n",
        "            pass\n",
        "tests/unit/state/test_page_files.py::"
        "test_a_kill_between_pages_and_the_batch_leaves_nothing_of_a_write",
    ),
    Mistake(
        "records that are merged forget what was erased",
        "processor/state/kv/page_files.py",
        "        return PageRecord(self._file, self._end, self._erased, self._deleted, pages)\n",
        "        return PageRecord(self._file, self._end, [], self._deleted, pages)\n",
        "tests/unit/state/test_page_files.py::test_what_was_erased_stays_erased_when_records_are_merged",
    ),
    Mistake(
        "pages are taken as written before RocksDB has their record",
        "processor/state/kv/rocks.py",
        "            self._db.write(self._batch(rest, erased, prepared))\n"
        "            if prepared is None:\n                return\n"
        "            self._pages.committed(prepared)\n",
        "            if prepared is not None:\n                self._pages.committed(prepared)\n"
        "            self._db.write(self._batch(rest, erased, prepared))\n"
        "            if prepared is None:\n                return\n",
        "tests/unit/state/test_page_files.py::"
        "test_a_write_that_rocksdb_refuses_leaves_nothing_and_the_next_one_takes_its_place",
    ),
    Mistake(
        "what is null is there where the first part that is there counts",
        "processor/engine/extract/parts.py",
        "((fault == 0) & (kind <= JsonKind.NULL))",
        "((fault == 0) & (kind == JsonKind.MISSING))",
        "tests/property/judges/test_judged_parts.py::"
        "test_of_a_case_from_the_field_the_copies_are_dropped_and_nothing_else_also_after_a_restart",
    ),
    Mistake(
        "a text of more digits than a UUID is one",
        "processor/engine/extract/normalise.py",
        "        if digit == 0 or count == _UUID_DIGITS:\n            return size\n",
        "        if digit == 0 or count == _UUID_DIGITS:\n            break\n",
        "tests/property/engine/test_parts.py::"
        "test_what_does_not_count_makes_one_id_and_what_is_of_another_form_stays_its_own",
    ),
    Mistake(
        "a number and a string are one scope",
        "processor/engine/extract/scopes.py",
        "            if form[k, row] == _NUMBER or form[k, row] == _BOOLEAN:\n",
        "            if form[k, row] == _BOOLEAN:\n",
        "tests/property/engine/test_parts.py::test_a_scope_is_the_json_of_its_parts",
    ),
)
