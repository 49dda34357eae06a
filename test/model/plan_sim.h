/* SPDX-License-Identifier: BSD-3-Clause
 * Runs the plans of all ranks of a group in one process, through any number of consecutive
 * collectives, and refuses what a real run might do wrong under any schedule: an access to a
 * window, or to a payload that stays with its sender, that is not ordered by a signal or a message
 * (vector clocks); a window or a signal between two hosts; a wrong or differing result; a deadlock;
 * a message that nobody takes. */
#ifndef TEST_MODEL_PLAN_SIM_H
#define TEST_MODEL_PLAN_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"

enum {
	PLAN_SIM_SLOTS = 8,    /* K: entry slots of a rank */
	PLAN_SIM_CAPACITY = 3, /* messages a link can hold, at most */
	PLAN_SIM_TEXT_BYTES = 512,
};

/* On which ranks OUTPUT is INPUT, or one of them a part of the other, where that can be. */
enum plan_sim_place { PLAN_SIM_OUT_OF_PLACE, PLAN_SIM_IN_PLACE, PLAN_SIM_ODD_IN_PLACE };

struct plan_sim_op {
	enum coll_id collective;
	enum plan_algorithm algorithm;
	enum plan_sim_place place;
	int root;
	uint32_t count; /* elements; where parts belong to ranks, of one part */
	bool uneven;    /* parts have different lengths, some none; `count` is only one of them */
};

struct plan_sim {
	int size;
	const struct plan_topology *topology; /* NULL: all ranks are on one host */
	/* Without clocks, which are most of the work with thousands of ranks: of accesses only
	 * those are refused that are wrong in any order. */
	bool unordered;
	int capacity; /* of each link, 1 to PLAN_SIM_CAPACITY */
	/* Payloads are copied when sent (short messages); otherwise they are read when they are
	 * taken, and a rank leaves only when all have been taken. */
	bool copied;
	/* How many collectives a rank may be ahead of the slowest; right is PLAN_SIM_SLOTS. */
	int ahead;
	const struct plan_sim_op *ops;
	int op_count;
	/* Changes a plan before it runs, to see that the change is refused; NULL: none. */
	void (*mutate)(const void *context, int op, struct plan *plan);
	const void *context;
};

/* True if all is well; else `report` (PLAN_SIM_TEXT_BYTES) says what is not. */
bool plan_sim_run(const struct plan_sim *sim, char *report);

#endif
