/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of `lockstep plan` share: plan_cmd.c reads the command line, plan_print.c
 * prints. */
#ifndef CLI_PLAN_CMD_H
#define CLI_PLAN_CMD_H

#include "launcher/launcher.h"
#include "plan/plan.h"
#include "plan/plan_table.h"

/* The collective whose plans are printed. */
struct cli_plan {
	struct plan_params params; /* rank is set for each plan */
	uint64_t bytes;
	int rank; /* print only this rank; -1: all */
	bool asked_algorithm;
	bool set_algorithm; /* LOCKSTEP_ALGORITHM has set it */
	const struct plan_table *table;
	/* With --hosts; params.topology points here if there are several. */
	struct plan_topology topology;
	uint16_t host_of[RANKS_WORLD_MAX];
	struct launcher_list hosts; /* count 0: without */
};

/* The algorithm that such a collective takes for this many bytes. wanted: where it has that. */
enum plan_algorithm cli_plan_choose(const struct cli_plan *plan, uint64_t bytes,
				    enum plan_algorithm wanted);
/* Prints the plans. Returns the exit status. */
int cli_plan_print(const struct cli_plan *plan);

#endif
