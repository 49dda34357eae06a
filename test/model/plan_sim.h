/* SPDX-License-Identifier: BSD-3-Clause
 * Runs the plans of all ranks of a group in one process, through any number of consecutive
 * collectives, and refuses what a real run might do wrong under any schedule: an access to a
 * window, or to a payload that stays with its sender, without a signal or message that orders it
 * (vector clocks); a window or a signal between two hosts; a wrong or differing result; a deadlock;
 * a message that nobody takes. */
#ifndef TEST_MODEL_PLAN_SIM_H
#define TEST_MODEL_PLAN_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"

enum {
	PLAN_SIM_SLOTS = 8,    /* entry slots of a rank */
	PLAN_SIM_CAPACITY = 3, /* the most messages that a link can hold */
	PLAN_SIM_TEXT_BYTES = 512,
};

/* On which ranks OUTPUT is INPUT, or one of them a part of the other, where a collective allows
 * that. */
enum plan_sim_place { PLAN_SIM_OUT_OF_PLACE, PLAN_SIM_IN_PLACE, PLAN_SIM_ODD_IN_PLACE };

struct plan_sim_op {
	enum coll_id collective;
	enum plan_algorithm algorithm;
	enum plan_sim_place place;
	int root;
	uint32_t count; /* elements; of one part, if each rank has a part */
	/* parts differ in length, and some are empty; `count` is the length of only one of them */
	bool uneven;
};

struct plan_sim {
	int size;
	const struct plan_topology *topology; /* NULL: all ranks are on one host */
	/* Without clocks, which are most of the work with thousands of ranks. Then only accesses
	 * are refused that are wrong in any order. */
	bool unordered;
	int capacity; /* of each link: 1 to PLAN_SIM_CAPACITY */
	/* Payloads are copied when they are sent (short messages). Otherwise they are read when
	 * they are taken, and a rank leaves only when all have been taken. */
	bool copied;
	/* How many collectives a rank may be ahead of the slowest one. PLAN_SIM_SLOTS is
	 * correct. */
	int ahead;
	const struct plan_sim_op *ops;
	int op_count;
	/* Changes a plan before it runs, so that a test sees that the change is refused. NULL:
	 * none. */
	void (*mutate)(const void *context, int op, struct plan *plan);
	const void *context;
};

/* True: all is right. Else `report` (PLAN_SIM_TEXT_BYTES) says what is wrong. */
bool plan_sim_run(const struct plan_sim *sim, char *report);

#endif
