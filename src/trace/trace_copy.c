/* SPDX-License-Identifier: BSD-3-Clause
 * Copies of traces that are read on other hosts: every record is whole, and call sites are text,
 * because the files of the program are on this host. */
#include "trace/trace.h"

#include <string.h>

enum { SITES_MAX = 64 };

/* A call site, and the label that stands for it in the copy. */
struct named {
	uint64_t site;
	uint32_t label;
};

/* The label with this text, or a free label that gets it; 0: there is neither. */
static uint32_t put_label(char (*labels)[TRACE_LABEL_BYTES], const char *text)
{
	for (uint32_t i = 0; i < TRACE_LABEL_MAX; i++) {
		if (!labels[i][0])
			memcpy(labels[i], text, strnlen(text, TRACE_LABEL_BYTES - 1));
		else if (strncmp(labels[i], text, TRACE_LABEL_BYTES - 1) != 0)
			continue;
		return i + 1;
	}
	return 0;
}

static uint32_t name_site(const struct trace_view *view, const struct trace_record *record,
			  char (*labels)[TRACE_LABEL_BYTES], struct named *known, uint32_t *count,
			  uint64_t deadline_ns)
{
	char text[TRACE_LABEL_BYTES];
	for (uint32_t i = 0; i < *count; i++)
		if (known[i].site == record->site)
			return known[i].label;
	if (*count == SITES_MAX || clock_now_ns() >= deadline_ns)
		return 0;
	trace_site(view, record, text, sizeof text);
	known[*count] = (struct named){record->site, text[0] ? put_label(labels, text) : 0};
	return known[(*count)++].label;
}

enum { FAR_APART_PPM = 1000, LONG_NS = 100000000 };

struct clock_rate trace_rate_now(const struct trace_view *view)
{
	struct clock_rate old, now;
	memcpy(&old, &view->header->rate, sizeof old);
	now = (struct clock_rate){.ticks = clock_ticks(), .ns = clock_now_ns()};
	double ticks = (double)(now.ticks - old.ticks), ns = (double)(now.ns - old.ns);
	now.ns_per_tick = ticks > 0 ? ns / ticks : 0;
	double apart = now.ns_per_tick / old.ns_per_tick - 1;
	/* Over a short time the old rate is better. If the two differ by much, the old rate is of
	 * another host. */
	if (now.ns < old.ns + LONG_NS ||
	    !(apart * 1e6 < FAR_APART_PPM && apart * 1e6 > -FAR_APART_PPM))
		return old;
	return now;
}

void trace_copy(const struct trace_view *view, void *out, uint64_t sites_until_ns)
{
	const unsigned char *from = (const unsigned char *)view->header;
	struct named known[SITES_MAX];
	uint32_t count = 0;
	size_t ring_at = (size_t)((const unsigned char *)view->ring - from);
	size_t labels_at = (size_t)((const unsigned char *)view->labels - from);
	char(*labels)[TRACE_LABEL_BYTES] = (void *)((unsigned char *)out + labels_at);
	struct trace_slot *ring = (void *)((unsigned char *)out + ring_at);
	struct clock_rate rate = trace_rate_now(view);
	memcpy(out, from, view->bytes);
	memcpy(&((struct trace_header *)out)->rate, &rate, sizeof rate);
	for (uint64_t i = 0; i < view->ring_records; i++) {
		struct trace_slot slot;
		uint32_t step;
		memset(&slot, 0, sizeof slot);
		(void)trace_read_at(view, i, &slot.record, &step);
		atomic_store_explicit(&slot.step, step, memory_order_relaxed);
		memcpy(&ring[i], &slot, sizeof slot);
	}
	/* After all records are copied, as a look-up takes its time, and all records are to be of
	 * one moment. */
	for (uint64_t i = 0; i < view->ring_records; i++) {
		struct trace_record *record = &ring[i].record;
		if (record->site && !record->label)
			record->label =
				name_site(view, record, labels, known, &count, sites_until_ns);
	}
}
