/* SPDX-License-Identifier: BSD-3-Clause
 * Fuzz entry: the input damages the traces and segments of two ranks that wait for each other. They
 * are then checked, collected, judged and reported, with the phases in them. The input: options,
 * room for the text; then patches of 13 bytes: place, offset, value. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/seqlock.h"
#include "ddp/phases.h"
#include "diagnose/diagnose.h"

enum { RANKS = 2, WORDS = 64, RECORDS = 32, PATCH_BYTES = 13, GROUP = 1 };
enum { WITH_HINT = 1, WITH_SITES = 2, SPOIL_JOB = 4 }; /* options */

/* The memory of one rank, exactly as long as a reader may read, and its original. */
struct image {
	unsigned char *trace, *trace_before;
	size_t trace_bytes;
	uint64_t *segment, *segment_before;
};

static struct image images[RANKS];
static struct diagnose_snapshot *snapshot;

static void *copy_of(const void *from, size_t bytes)
{
	void *copy = aligned_alloc(64, (bytes + 63) / 64 * 64);
	MUST(copy);
	return memcpy(copy, from, bytes);
}

/* Phases, some ended and some not, and a published report. */
static void live_in_phases(struct trace *trace, int rank)
{
	static const char *const names[] = {"data", "data/image", "forward", "backward/head"};
	const char *inside;
	for (int i = 0; i < 4; i++) {
		MUST(trace_phase_begin(trace, names[i], &inside) == TRACE_PHASE_DONE);
		trace_waited(trace, 1000);
		if (i > 0) /* data/image is in data */
			MUST(trace_phase_end(trace, names[i], &inside) == TRACE_PHASE_DONE);
		if (i == 1)
			MUST(trace_phase_end(trace, names[0], &inside) == TRACE_PHASE_DONE);
	}
	trace_waited(trace, 1000);
	MUST(trace_phase_begin(trace, names[rank], &inside) == TRACE_PHASE_DONE);
	trace_report(trace, GROUP, LS_PEER_LEFT, !rank, 19, "a rank has left");
}

/* Some complete operations, one in progress, and a thread that waits in it for the other rank. */
static void live(struct trace *trace, int rank)
{
	struct trace_begin begin = {.group = GROUP, .count = 100, .dtype = LS_FLOAT32, .peer = !rank};
	begin.label = trace_label(trace, "train.py:42");
	uint16_t members[RANKS];
	for (int r = 0; r < RANKS; r++)
		members[r] = (uint8_t)r;
	trace_group_fill(trace, 0,
			 &(struct trace_membership){
				 .id = GROUP, .size = RANKS, .rank = rank, .members = members});
	for (uint64_t i = 1; i < 20; i++) {
		begin.kind = (uint16_t)(1 + i % (TRACE_KIND_COUNT - 1));
		begin.seq = i;
		begin.shape = i / 5;
		trace_end(trace, trace_begin(trace, &begin), LS_OK);
	}
	begin.site = (uint64_t)(uintptr_t)__builtin_return_address(0);
	begin.label = 0;
	struct wait_slot_body body = {
		.state = WAIT_WORDS,
		.tid = trace_thread_id(),
		.group = GROUP,
		.record = trace_begin(trace, &begin),
		.edge_count = 1,
		.edges = {{.value = 5, .owner = rank, .peer = !rank, .segment = WAIT_SEGMENT_MAPPED}},
	};
	struct wait_slot *slot = &trace->wait_table->slots[0];
	atomic_store(&slot->taken, 1);
	seqlock_begin(&slot->epoch);
	seqlock_store(&slot->body, &body, sizeof body);
	seqlock_end(&slot->epoch);
}

static void make_images(void)
{
	static const uint64_t zeros[WORDS];
	for (int r = 0; r < RANKS; r++) {
		struct trace_options options = {
			.job = 1, .rank = r, .world_size = RANKS, .records = RECORDS};
		struct image *image = &images[r];
		struct trace trace;
		MUST(trace_init(&trace, &options) == LS_OK);
		live(&trace, r);
		live_in_phases(&trace, r);
		trace_set_device(&trace, "sim:0");
		image->trace_bytes = trace.bytes;
		image->trace = copy_of(trace.header, trace.bytes);
		image->trace_before = copy_of(trace.header, trace.bytes);
		image->segment = copy_of(zeros, sizeof zeros);
		image->segment_before = copy_of(zeros, sizeof zeros);
		trace_fini(&trace);
	}
	snapshot = diagnose_snapshot_new(RANKS);
	MUST(snapshot);
}

/* Applies a patch to the images, or reverts it. */
static void apply(const uint8_t *patch, bool undo)
{
	struct image *image = &images[patch[0] & 1];
	uint32_t offset;
	uint64_t value;
	memcpy(&offset, patch + 1, sizeof offset);
	memcpy(&value, patch + 5, sizeof value);
	size_t bytes = 1u << (patch[0] >> 1 & 3), end = image->trace_bytes;
	const struct trace_header *good = (const struct trace_header *)image->trace_before;
	size_t phases = (size_t)good->phase_offset;
	unsigned char *to = image->trace, *before = image->trace_before;
	switch (patch[0] >> 3 & 3) {
	case 0:
		end = sizeof(struct trace_header);
		break;
	case 1:
		to = (unsigned char *)image->segment;
		before = (unsigned char *)image->segment_before;
		end = WORDS * sizeof(uint64_t);
		break;
	case 2:
		to += phases;
		before += phases;
		end = (size_t)good->device_offset - phases + sizeof(struct trace_device);
		break;
	default: /* anywhere in the trace */
		break;
	}
	offset = (uint32_t)(offset % (end / bytes) * bytes);
	memcpy(to + offset, undo ? before + offset : (unsigned char *)&value, bytes);
}

static void judge_and_tell(const struct diagnose_hint *hint, size_t room)
{
	static char text[256 * 16 + 1];
	struct diagnose_verdict verdict;
	diagnose_judge(snapshot, hint, &verdict);
	MUST(verdict.cause <= DIAGNOSE_ABORTED);
	MUST(verdict.culprit == -1 || (verdict.culprit >= 0 && verdict.culprit < RANKS));
	MUST(!ranks_meet(&verdict.waiting, &verdict.culprits));
	memset(text, '#', sizeof text);
	diagnose_text(snapshot, &verdict, text, room);
	MUST(text[room] == '#' && (!room || memchr(text, 0, room)));
	diagnose_headline(snapshot, &verdict, text, room);
	MUST(text[room] == '#');
}

/* What a reader of phases and of the published cause can rely on, whatever the memory holds. */
static void read_trace(const struct trace_view *view, uint64_t now_ns, int rank,
		       struct ddp_phases *together)
{
	struct trace_phases phases;
	struct trace_report report;
	struct trace_memory_seen seen;
	bool has_device = trace_read_memory(view, &seen);
	MUST(memchr(seen.name, 0, sizeof seen.name));
	MUST(!seen.consistent ||
	     (has_device && seen.live <= seen.peak_live &&
	      seen.live + seen.cached + seen.pending + seen.put_off == seen.reserved));
	trace_read_phases(view, now_ns, &phases);
	MUST(phases.count <= TRACE_PHASE_MAX);
	for (uint32_t i = 0; i < phases.count; i++) {
		MUST(phases.phases[i].waited_ns <= phases.phases[i].ns);
		MUST(phases.phases[i].running <= TRACE_PHASE_THREAD_MAX);
		MUST(phases.phases[i].name[0] && memchr(phases.phases[i].name, 0, TRACE_PHASE_BYTES));
	}
	ddp_phases_add(together, rank, &phases);
	bool told = trace_read_report(view, &report);
	MUST(memchr(report.text, 0, sizeof report.text));
	MUST(ls_status_scope(atomic_load(&report.status)) == (told ? LS_SCOPE_GROUP : LS_SCOPE_NONE));
}

static void compare_phases(const struct ddp_phases *phases, size_t room)
{
	static char text[256 * 16 + 1];
	struct ddp_stragglers found;
	ddp_phases_judge(phases, &found);
	MUST(found.count >= 0 && found.count <= DDP_STRAGGLER_MAX);
	for (int i = 0; i < found.count; i++) {
		const struct ddp_straggler *straggler = &found.stragglers[i];
		MUST(straggler->share > 0 && straggler->share <= 1);
		MUST(ranks_any(&straggler->ranks) && ranks_last(&straggler->ranks) < RANKS);
		MUST(straggler->column >= 0 && straggler->column < phases->column_count);
	}
	memset(text, '#', sizeof text);
	ddp_phases_text(phases, text, room);
	MUST(text[room] == '#' && (!room || memchr(text, 0, room)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct trace_view views[RANKS];
	struct diagnose_source sources[RANKS] = {0};
	static struct ddp_phases *phases, *no_phases;
	if (!snapshot) {
		make_images();
		phases = ddp_phases_new(RANKS);
		no_phases = ddp_phases_new(RANKS);
		MUST(phases && no_phases);
	}
	if (size < 2)
		return 0;
	uint8_t options = data[0];
	size_t room = (size_t)data[1] * 16, count = (size - 2) / PATCH_BYTES;
	const uint8_t *patches = data + 2;
	memcpy(phases, no_phases, sizeof *phases);
	for (size_t i = 0; i < count; i++)
		apply(patches + i * PATCH_BYTES, false);
	for (int r = 0; r < RANKS; r++) {
		const char *why;
		bool usable = trace_check(images[r].trace, images[r].trace_bytes, &views[r], &why);
		if (usable)
			read_trace(&views[r], size & 1 ? clock_now_ns() : 0, r, phases);
		sources[r] = (struct diagnose_source){
			.rank = r,
			.pid = getpid(),
			.trace = usable ? &views[r] : NULL,
			.segment = images[r].segment,
			.segment_bytes = WORDS * sizeof(uint64_t),
			.process = options >> 4 & 3,
		};
	}
	compare_phases(phases, room);
	/* Call sites open files, which is slow, so only sometimes. */
	struct diagnose_closing closing = {.count = 1, .ids = &(uint32_t){GROUP}};
	diagnose_collect(sources, RANKS, options & WITH_HINT ? &closing : NULL, snapshot);
	if (options & WITH_SITES && (options >> 6) == 3)
		diagnose_add_sites(sources, RANKS, snapshot);
	MUST(diagnose_snapshot_is_valid(snapshot, diagnose_snapshot_bytes(RANKS)));
	struct diagnose_hint hint = {.status = size & 15,
				     .rank = (int)(size % 4) - 1,
				     .peer = (int)(size / 4 % 4) - 1,
				     .group = GROUP,
				     .seq = size % 32,
				     .sent = size % 3,
				     .expected = size % 5,
				     .note = "a \033 note"};
	judge_and_tell(options & WITH_HINT ? &hint : NULL, room);
	for (size_t i = 0; i < count && options & SPOIL_JOB; i++) {
		/* A job from a file: what passes the check can be judged. */
		uint32_t offset;
		memcpy(&offset, patches + i * PATCH_BYTES + 1, sizeof offset);
		((unsigned char *)snapshot)[offset % diagnose_snapshot_bytes(RANKS)] =
			patches[i * PATCH_BYTES + 5];
		if (!diagnose_snapshot_is_valid(snapshot, diagnose_snapshot_bytes(RANKS)))
			break;
		judge_and_tell(NULL, room);
	}
	snapshot->size = RANKS;
	for (size_t i = 0; i < count; i++)
		apply(patches + i * PATCH_BYTES, true);
	return 0;
}

size_t fuzz_draw(uint64_t *state, uint8_t *data)
{
	size_t size = 2 + fuzz_random(state) % (1 + 16 * PATCH_BYTES);
	for (size_t at = 0; at < size; at++)
		data[at] = (uint8_t)fuzz_random(state);
	/* Small values reach further than huge ones. */
	for (size_t at = 2; at + PATCH_BYTES <= size; at += PATCH_BYTES)
		if (data[at] & 64)
			memset(data + at + 6, data[at] & 128 ? 0 : 0xff, 7);
	return size;
}
