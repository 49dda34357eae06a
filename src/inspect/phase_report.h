/* SPDX-License-Identifier: BSD-3-Clause
 * Phases of a job's ranks, in reports. All functions take NULL for a job without any. */
#ifndef INSPECT_PHASE_REPORT_H
#define INSPECT_PHASE_REPORT_H

#include <stdio.h>

#include "print/print.h"
#include "ddp/phases.h"
#include "diagnose/diagnose.h"

/* Adds what is recorded in `trace`, of this rank, up to now_ns by the clock of its host. */
void inspect_phases_add(struct ddp_phases *phases, const struct diagnose_rank *rank,
			uint64_t now_ns, const struct trace_view *trace);

/* A part of a job's report, nothing if no rank has begun a phase; and by itself. */
void inspect_phases_print(FILE *out, const struct ddp_phases *phases);
void inspect_phases_report(FILE *out, const struct ddp_phases *phases);
/* The keys "phases" of a rank and "stragglers" of a job. */
void inspect_phases_json(struct print_json *json, const struct ddp_phases *phases, int rank);
void inspect_stragglers_json(struct print_json *json, const struct ddp_phases *phases);

#endif
