/* SPDX-License-Identifier: BSD-3-Clause
 * Finds the traces that this process holds, its own and those of its peers, among its descriptors,
 * and draws each job's. */
#include "timeline.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "timeline/timeline.h"

enum { VIEWS_MAX = 256 };

struct traces {
	struct trace_view views[VIEWS_MAX];
	int count;
};

static bool is_trace(int folder, const char *name)
{
	static const char prefix[] = "/memfd:lockstep-trace:";
	char target[sizeof prefix];

	return readlinkat(folder, name, target, sizeof target) == sizeof target &&
	       memcmp(target, prefix, sizeof prefix - 1) == 0;
}

/* With ranks as threads each of them holds every trace. */
static bool is_there(const struct traces *traces, const struct trace_view *view)
{
	for (int i = 0; i < traces->count; i++)
		if (traces->views[i].header->job == view->header->job &&
		    traces->views[i].header->rank == view->header->rank)
			return true;
	return false;
}

static void find(struct traces *traces)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	const char *why;

	while (folder && traces->count < VIEWS_MAX && (entry = readdir(folder))) {
		struct trace_view *view = &traces->views[traces->count];
		if (!is_trace(dirfd(folder), entry->d_name) ||
		    !trace_map((int)strtol(entry->d_name, NULL, 10), view, &why))
			continue;
		if (is_there(traces, view))
			trace_unmap(view);
		else
			traces->count++;
	}
	if (folder)
		closedir(folder);
}

static void draw(const struct traces *traces, const struct trace_header *first, FILE *out)
{
	struct timeline *timeline = timeline_new(first->job, first->world_size);
	bool good = timeline != NULL;

	for (int i = 0; good && i < traces->count; i++)
		if (traces->views[i].header->job == first->job)
			good = timeline_add(timeline, traces->views[i].header->rank,
					    &traces->views[i]);
	uint64_t now_ns = clock_now_ns();
	for (int i = 0; good && i < traces->count; i++)
		if (traces->views[i].header->job == first->job)
			timeline_add_sites(timeline, traces->views[i].header->rank,
					   &traces->views[i]);
	if (good && timeline_lay_out(timeline, 0, now_ns))
		timeline_text(timeline, TIMELINE_COLUMNS, out);
	else
		fputs("no memory for a timeline\n", out);
	timeline_free(timeline);
}

void timeline_print(FILE *out)
{
	struct traces *traces = calloc(1, sizeof *traces);

	if (!traces)
		return;
	find(traces);
	for (int i = 0; i < traces->count; i++) {
		const struct trace_header *header = traces->views[i].header;
		bool drawn = header->job == 0; /* has not met */
		for (int before = 0; before < i; before++)
			drawn = drawn || traces->views[before].header->job == header->job;
		if (!drawn)
			draw(traces, header, out);
	}
	for (int i = 0; i < traces->count; i++)
		trace_unmap(&traces->views[i]);
	free(traces);
	fflush(out);
}
