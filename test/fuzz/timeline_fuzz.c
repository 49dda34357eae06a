/* SPDX-License-Identifier: BSD-3-Clause
 * Fuzz entry: the input damages a file of lockstep run --trace, which is then read, and drawn if it
 * is accepted. The input: options; then patches of 13 bytes: place, offset, value. */
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "timeline/timeline.h"
#include "inspect/inspect.h"

enum { RANKS = 2, RECORDS = 64, PATCH_BYTES = 13, COLUMNS = 80, HEAD = 4096 };

/* The file, and where the trace of the last rank begins in it; the ring of that trace is its
 * end. */
static struct {
	int fd;
	char path[64];
	unsigned char *whole;
	size_t bytes, trace, ring;
} file = {.fd = -1};

static void live(struct trace *trace, int rank)
{
	struct trace_begin begin = {.group = 1, .count = 100, .peer = !rank};
	static const uint16_t members[RANKS] = {0};
	trace_group_fill(trace, 0,
			 &(struct trace_membership){
				 .id = 1, .size = RANKS, .rank = rank, .members = members});
	begin.label = trace_label(trace, "train.py:42");
	for (uint64_t i = 1; i < 2 * RECORDS; i++) {
		begin.kind = (uint16_t)(1 + i % (TRACE_KIND_COUNT - 1));
		begin.seq = i;
		begin.tag = (int32_t)(i % 5);
		uint64_t index = trace_begin(trace, &begin);
		if (i % 10)
			trace_end(trace, index, i % 7 ? LS_OK : LS_TIMED_OUT);
	}
}

static void make_file(void)
{
	struct inspect_view *view = inspect_view_new(1, RANKS);
	struct trace traces[RANKS];
	for (int r = 0; r < RANKS; r++) {
		struct trace_options options = {
			.job = 1, .rank = r, .world_size = RANKS, .records = RECORDS};
		MUST(trace_init(&traces[r], &options) == LS_OK);
		live(&traces[r], r);
		MUST(inspect_view_add_trace(view, r, fcntl(traces[r].fd, F_DUPFD_CLOEXEC, 3)));
	}
	struct inspect_report *report = inspect_report_take(view, NULL);
	file.fd = memfd_create("timeline-fuzz", MFD_CLOEXEC);
	MUST(report && file.fd >= 0);
	snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", file.fd);
	MUST(inspect_save_to(file.fd, view, report, "it is over", true) == 0);
	file.bytes = (size_t)lseek(file.fd, 0, SEEK_END);
	file.whole = malloc(file.bytes);
	MUST(file.whole && pread(file.fd, file.whole, file.bytes, 0) == (ssize_t)file.bytes);
	file.trace = file.bytes - traces[RANKS - 1].bytes;
	file.ring = file.bytes - RECORDS * sizeof(struct trace_slot);
	inspect_report_free(report);
	inspect_view_free(view);
	for (int r = 0; r < RANKS; r++)
		trace_fini(&traces[r]);
}

/* Applies a patch to the file, or reverts it. */
static void apply(const uint8_t *patch, bool undo)
{
	uint32_t offset;
	memcpy(&offset, patch + 1, sizeof offset);
	size_t bytes = 1u << (patch[0] >> 1 & 3), at = 0, room = file.bytes;
	switch (patch[0] >> 3 & 3) {
	case 0:
		at = file.ring;
		room = file.bytes - file.ring;
		break;
	case 1:
		at = file.trace;
		room = offsetof(struct trace_header, report);
		break;
	case 2:
		room = HEAD;
		break;
	default: /* anywhere */
		break;
	}
	at += offset % (room / bytes) * bytes;
	const void *value = undo ? (const void *)(file.whole + at) : (const void *)(patch + 5);
	MUST(pwrite(file.fd, value, bytes, (off_t)at) == (ssize_t)bytes);
}

static void check_layout(const struct timeline *timeline)
{
	MUST(timeline->begin_ns <= timeline->end_ns && timeline->end_ns <= timeline->now_ns);
	MUST(timeline->row_count <= RANKS * TIMELINE_ROW_MAX);
	for (size_t i = 0; i < timeline->op_count; i++) {
		const struct timeline_op *op = &timeline->ops[i];
		MUST(op->begin_ns <= op->end_ns && op->end_ns <= timeline->end_ns);
		MUST(op->row < timeline->row_count && timeline->rows[op->row].rank == op->rank);
		MUST(op->record.kind > 0 && op->record.kind < TRACE_KIND_COUNT);
	}
}

static void check_pictures(const struct timeline *timeline)
{
	char *text = NULL;
	size_t bytes, bars = 0;
	FILE *out = open_memstream(&text, &bytes);
	MUST(out);
	timeline_text(timeline, COLUMNS, out);
	MUST(fclose(out) == 0);
	for (size_t i = 0; i < bytes; i++)
		MUST(text[i] == '\n' || ((unsigned char)text[i] >= ' ' && text[i] != 127));
	free(text);
	out = open_memstream(&text, &bytes);
	MUST(out);
	timeline_html(timeline, out);
	MUST(fclose(out) == 0 && strlen(text) == bytes);
	for (const char *at = text; (at = strstr(at, "class=\"bar ")); at++)
		bars++;
	MUST(bars == timeline->op_count && !strstr(text, "\"nan") && !strstr(text, "\"-nan"));
	free(text);
}

static void draw(const struct inspect_saved *saved, uint64_t last_ns, bool with_sites)
{
	const struct diagnose_snapshot *snapshot = saved->report.snapshot;
	struct timeline *timeline = timeline_new(snapshot->job, snapshot->size);
	MUST(timeline);
	for (int r = 0; r < snapshot->size; r++)
		if (saved->traces[r].header)
			MUST(timeline_add(timeline, r, &saved->traces[r]));
	for (int r = 0; r < snapshot->size && with_sites; r++)
		if (saved->traces[r].header)
			timeline_add_sites(timeline, r, &saved->traces[r]);
	MUST(timeline_lay_out(timeline, last_ns, snapshot->now_ns));
	check_layout(timeline);
	check_pictures(timeline);
	timeline_free(timeline);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *why = NULL;
	if (file.fd < 0)
		make_file();
	if (size < 1)
		return 0;
	size_t count = (size - 1) / PATCH_BYTES;
	for (size_t i = 0; i < count; i++)
		apply(data + 1 + i * PATCH_BYTES, false);
	struct inspect_saved *saved = inspect_saved_read(file.path, &why);
	MUST(!saved == !!why);
	/* Call sites open files, which is slow, so only sometimes. */
	if (saved)
		draw(saved, data[0] & 1 ? UINT64_C(1) << (data[0] >> 2) : 0, data[0] >> 4 == 0);
	inspect_saved_free(saved);
	for (size_t i = 0; i < count; i++)
		apply(data + 1 + i * PATCH_BYTES, true);
	return 0;
}

size_t fuzz_draw(uint64_t *state, uint8_t *data)
{
	size_t size = 1 + fuzz_random(state) % (1 + 16 * PATCH_BYTES);
	bool deep = fuzz_random(state) % 4;
	for (size_t at = 0; at < size; at++)
		data[at] = (uint8_t)fuzz_random(state);
	/* Small values reach further than huge ones, and a damaged head ends everything. */
	for (size_t at = 1; at + PATCH_BYTES <= size; at += PATCH_BYTES) {
		if (data[at] & 64)
			memset(data + at + 6, data[at] & 128 ? 0 : 0xff, 7);
		if (deep)
			data[at] &= 0x0f;
	}
	return size;
}
