/* SPDX-License-Identifier: BSD-3-Clause
 * Turns the return address of a record into a line of source, from the files that the trace's
 * header names: the process itself may be gone. */
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Copies the module that `address` lies in, the newest first. The path becomes a string. */
static bool find_module(const struct trace_view *view, uint64_t address, struct trace_module *out)
{
	for (uint32_t i = view->module_count; i > 0; i--) {
		memcpy(out, &view->modules[i - 1], sizeof *out);
		out->path[sizeof out->path - 1] = 0;
		if (address >= out->base && address < out->end)
			return true;
	}
	return false;
}

void trace_site(const struct trace_view *view, const struct trace_record *record, char *out,
		size_t bytes)
{
	if (!bytes)
		return;
	out[0] = 0;
	if (record->label >= 1 && record->label <= TRACE_LABEL_MAX)
		snprintf(out, bytes, "%.*s", TRACE_LABEL_BYTES - 1, view->labels[record->label - 1]);
	struct trace_module module;
	if (!out[0] && record->site == TRACE_NO_SITE)
		snprintf(out, bytes, "(not recorded)");
	else if (!out[0] && record->site && find_module(view, record->site - 1, &module))
		trace_place(&module, record->site, out, bytes);
	else if (!out[0] && record->site)
		snprintf(out, bytes, "0x%" PRIx64, record->site);
	/* The text goes to terminals, and other processes wrote it. */
	text_clean(out, false);
}
