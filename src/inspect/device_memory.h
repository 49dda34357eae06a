/* SPDX-License-Identifier: BSD-3-Clause
 * Device memory of a job's ranks: who holds how much. For lockstep memory. */
#ifndef INSPECT_DEVICE_MEMORY_H
#define INSPECT_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stdio.h>

#include "inspect/inspect.h"
#include "print/print.h"

struct inspect_memory {
	const struct inspect_report *report; /* of the same moment */
	const struct inspect_saved *saved;   /* NULL: it was read just now */
	bool has_device[INSPECT_RANK_MAX];
	struct trace_memory_seen ranks[INSPECT_RANK_MAX]; /* of ranks that have a device */
};

/* Reads it from a job in memory, or from a file. The report, and the snapshot, must stay. */
void inspect_memory_take(const struct inspect_view *view, const struct inspect_report *report,
			 struct inspect_memory *out);
void inspect_memory_of_file(const struct inspect_saved *saved, struct inspect_memory *out);

/* A table for people; one object for programs. */
void inspect_memory_print(FILE *out, const struct inspect_memory *memory);
void inspect_memory_json(struct print_json *json, const struct inspect_memory *memory);

/* ---- device_memory_svg.c ---- */

/* A whole SVG file, UTF-8: a bar for each rank that has a device. */
void inspect_memory_svg(FILE *out, const struct inspect_memory *memory);

#endif
