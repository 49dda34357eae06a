/* SPDX-License-Identifier: BSD-3-Clause
 * Makes parts of a job, and one report of them; see host_part.h. */
#include "inspect/host_part.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "inspect/ask_hosts.h"

#define PART_MAGIC UINT64_C(0x315452415053) /* "SPART1" */
enum { SITES_MS = 2000, TRACE_ALIGN = 64 };

struct piece {
	uint64_t offset, bytes; /* bytes 0: not there */
};

/* Followed by the pieces. */
struct part_head {
	uint64_t magic, bytes;
	uint64_t job;
	uint64_t copied_ns; /* when the traces were copied, by the clock of their host */
	uint64_t operation; /* as in struct inspect_report */
	uint32_t failure, group;
	int32_t culprit, size;
	struct piece ranks; /* made by diagnose_pack */
	struct piece traces[RANKS_WORLD_MAX];
	char text[TRANSPORT_TEXT_BYTES];
};

static size_t align_up(size_t bytes)
{
	return (bytes + TRACE_ALIGN - 1) / TRACE_ALIGN * TRACE_ALIGN;
}

/* ---- packing ---- */

static uint64_t place(struct piece *piece, uint64_t at, uint64_t bytes)
{
	*piece = (struct piece){at, bytes};
	return at + align_up(bytes);
}

static void fill_head(struct part_head *head, const struct inspect_view *view,
		      const struct inspect_report *report, const struct ranks *here, size_t packed)
{
	*head = (struct part_head){
		.magic = PART_MAGIC,
		.job = view->job,
		.failure = report->failure,
		.group = report->group,
		.culprit = report->culprit,
		.operation = report->operation,
		.size = view->size,
	};
	memcpy(head->text, report->text, sizeof head->text);
	head->bytes = place(&head->ranks, align_up(sizeof *head), packed);
	RANKS_EACH (q, here) {
		uint64_t bytes = view->ranks[q].trace.header ? view->ranks[q].trace.bytes : 0;
		if (bytes > 0 && bytes <= INSPECT_PART_BYTES_MAX - TRACE_ALIGN - head->bytes)
			head->bytes = place(&head->traces[q], head->bytes, bytes);
	}
}

static void *copy_pieces(struct part_head *head, const struct inspect_view *view,
			 const struct ranks *here, const void *packed, uint64_t until_ns)
{
	char *block = aligned_alloc(TRACE_ALIGN, head->bytes);
	if (!block)
		return NULL;
	memset(block, 0, head->bytes);
	memcpy(block + head->ranks.offset, packed, head->ranks.bytes);
	RANKS_EACH (q, here)
		if (head->traces[q].bytes)
			trace_copy(&view->ranks[q].trace, block + head->traces[q].offset, until_ns);
	head->copied_ns = clock_now_ns();
	memcpy(block, head, sizeof *head);
	return block;
}

void *inspect_part_pack(const struct inspect_view *view, struct inspect_report *report,
			const struct ranks *here, size_t *bytes)
{
	uint64_t until_ns = clock_deadline_ns(SITES_MS);
	struct diagnose_traffic *traffic = calloc((size_t)view->size, sizeof *traffic);
	struct part_head *head = malloc(sizeof *head);
	void *packed = NULL, *block = NULL;
	size_t packed_bytes;

	diagnose_add_sites(report->sources, view->size, report->snapshot);
	if (traffic && head)
		packed = diagnose_pack(report->snapshot, here, traffic, &packed_bytes);
	if (packed) {
		fill_head(head, view, report, here, packed_bytes);
		block = copy_pieces(head, view, here, packed, until_ns);
		*bytes = head->bytes;
	}
	free(packed);
	free(traffic);
	free(head);
	return block;
}

/* ---- joining ---- */

static bool is_inside(const struct piece *piece, size_t bytes)
{
	return piece->offset >= sizeof(struct part_head) && piece->offset <= bytes &&
	       piece->bytes <= bytes - piece->offset && piece->offset % TRACE_ALIGN == 0;
}

/* Checks all but the ranks. */
static bool read_head(const struct inspect_part *part, int size, struct part_head *head)
{
	if (!part->block || part->bytes < sizeof *head)
		return false;
	memcpy(head, part->block, sizeof *head);
	head->text[sizeof head->text - 1] = '\0';
	return head->magic == PART_MAGIC && head->bytes == part->bytes && head->size == size &&
	       head->failure <= LS_INTERNAL && head->culprit >= -1 && head->culprit < size &&
	       is_inside(&head->ranks, part->bytes);
}

struct joining {
	struct inspect_report *report;
	struct inspect_hosts *hosts;
	struct diagnose_traffic *traffic; /* nobody reads it */
	struct part_head head;            /* of the part that is looked at */
	int size;
	size_t used, room; /* of hosts->memory */
};

/* A job whose ranks are not known yet; NULL without memory. */
static struct diagnose_snapshot *empty_snapshot(int size)
{
	struct diagnose_snapshot *snapshot = diagnose_snapshot_new(size);
	for (int q = 0; snapshot && q < size; q++)
		snapshot->ranks[q].rank = q;
	return snapshot;
}

/* Whether the part has ranks of its host, and no others: tries it with a job of its own, as a bad
 * part spoils the job to which it is added. */
static bool has_good_ranks(struct joining *join, const struct inspect_part *part)
{
	const struct ranks none = {{0}};
	struct diagnose_snapshot *trial = empty_snapshot(join->size);
	if (!trial)
		return false;
	trial->job = join->head.job;
	bool good =
		diagnose_unpack(trial, &none, (const char *)part->block + join->head.ranks.offset,
				join->head.ranks.bytes, join->traffic);
	for (int q = 0; good && q < join->size; q++)
		if (q < part->first || q >= part->first + part->ranks)
			good = !trial->ranks[q].known;
	free(trial);
	return good;
}

static void take_traces(struct joining *join, const struct inspect_part *part)
{
	struct inspect_hosts *hosts = join->hosts;
	const char *why;
	for (int q = part->first; q < part->first + part->ranks; q++) {
		const struct piece *piece = &join->head.traces[q];
		hosts->copied_ns[q] = join->head.copied_ns;
		if (!piece->bytes || !is_inside(piece, part->bytes) ||
		    align_up(piece->bytes) > join->room - join->used)
			continue;
		char *copy = (char *)hosts->memory + join->used;
		memcpy(copy, (const char *)part->block + piece->offset, piece->bytes);
		if (trace_check(copy, piece->bytes, &hosts->traces[q], &why) &&
		    hosts->traces[q].header->rank == q)
			join->used += align_up(piece->bytes);
		else
			hosts->traces[q] = (struct trace_view){0};
	}
}

/* The first part that has a published cause tells it. */
static void take_cause(struct joining *join)
{
	struct inspect_report *report = join->report;
	if (report->failure != LS_OK || join->head.failure == LS_OK)
		return;
	report->failure = (ls_status)join->head.failure;
	report->group = join->head.group;
	report->culprit = join->head.culprit;
	report->operation = join->head.operation;
	memcpy(report->text, join->head.text, sizeof report->text);
}

/* False: the part is left out. */
static bool add_part(struct joining *join, const struct inspect_part *part)
{
	const struct ranks none = {{0}};
	struct diagnose_snapshot *snapshot = join->report->snapshot;
	if (!read_head(part, join->size, &join->head) ||
	    (snapshot->job && snapshot->job != join->head.job) || !has_good_ranks(join, part))
		return false;
	snapshot->job = join->head.job;
	if (!diagnose_unpack(snapshot, &none, (const char *)part->block + join->head.ranks.offset,
			     join->head.ranks.bytes, join->traffic))
		return false;
	take_cause(join);
	take_traces(join, part);
	return true;
}

/* What is known of the ranks of this host without its part. */
static void place_ranks(struct joining *join, const struct inspect_part *part, bool told)
{
	struct inspect_hosts *hosts = join->hosts;
	for (int q = part->first; q < part->first + part->ranks; q++) {
		struct diagnose_rank *rank = &join->report->snapshot->ranks[q];
		struct transport_location *location = &hosts->locations[q];
		snprintf(location->host, sizeof location->host, "%s", part->host);
		location->first = part->first;
		location->pid = rank->known ? rank->pid : 0;
		hosts->offset_ns[q] = part->offset_ns;
		hosts->error_ns[q] = part->error_ns;
		if (!rank->known)
			snprintf(rank->host, sizeof rank->host, "%s", part->host);
		rank->incomplete = true; /* see inspect_parts_join */
		if (told)
			ranks_add(&hosts->answered, q);
	}
}

static bool join_init(struct joining *join, const struct inspect_part *parts, int count, int size)
{
	*join = (struct joining){.size = size};
	for (int i = 0; i < count; i++)
		join->room += parts[i].block ? align_up(parts[i].bytes) : 0;
	join->report = calloc(1, sizeof *join->report);
	join->hosts = calloc(1, sizeof *join->hosts);
	join->traffic = calloc((size_t)size, sizeof *join->traffic);
	if (!join->report || !join->hosts || !join->traffic)
		return false;
	join->report->hosts = join->hosts;
	join->report->culprit = -1;
	join->report->snapshot = empty_snapshot(size);
	if (join->report->snapshot)
		join->report->snapshot->now_ns = clock_now_ns();
	join->hosts->memory = join->room ? aligned_alloc(TRACE_ALIGN, join->room) : NULL;
	return join->report->snapshot && join->hosts->memory;
}

struct inspect_report *inspect_parts_join(const struct inspect_part *parts, int count, int size,
					  uint64_t waited_ms)
{
	struct joining join;
	bool some = false, good = join_init(&join, parts, count, size);

	for (int i = 0; good && i < count; i++) {
		bool told = add_part(&join, &parts[i]);
		some |= told;
		place_ranks(&join, &parts[i], told);
	}
	free(join.traffic);
	if (!good || !some) {
		if (join.report)
			join.report->hosts = NULL;
		inspect_report_free(join.report);
		inspect_hosts_free(join.hosts);
		return NULL;
	}
	join.hosts->here = -1; /* the launcher may be on none of them */
	join.hosts->has_told = join.hosts->has_copied = true;
	join.hosts->copied = join.hosts->answered;
	join.hosts->waited_ms = waited_ms;
	return join.report;
}
