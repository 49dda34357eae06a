/* SPDX-License-Identifier: BSD-3-Clause
 * Plans as text: what was chosen for which sizes, and the steps of each rank. */
#include "cli/plan_cmd.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/messages.h"
#include "cli/cli.h"
#include "print/print.h"
#include "transport/transport.h"

enum plan_algorithm cli_plan_choose(const struct cli_plan *choices, uint64_t bytes,
				    enum plan_algorithm wanted)
{
	const struct plan_params *params = &choices->params;
	struct plan_table_choice choice;

	plan_table_choose(choices->table, params->collective, bytes, TRANSPORT_INLINE_BYTES,
			  params->size, wanted, &choice);
	return plan_across(params->collective, choice.algorithm, bytes, params->size,
			   params->topology);
}

/* The first number of bytes above `from` for which the choice is another one; UINT64_MAX: none.
 * Looks at doubling sizes, then halves the gap; so it could only miss a range that ends where it
 * began. */
static uint64_t next_change(const struct cli_plan *choices, uint64_t from, enum plan_algorithm now)
{
	uint64_t low = from;

	for (int bit = 0; bit < 40; bit++) {
		uint64_t high = UINT64_C(1) << bit;
		if (high <= from)
			continue;
		if (cli_plan_choose(choices, high, PLAN_NONE) == now) {
			low = high;
			continue;
		}
		while (high - low > 1) {
			uint64_t middle = low + (high - low) / 2;
			if (cli_plan_choose(choices, middle, PLAN_NONE) == now)
				low = middle;
			else
				high = middle;
		}
		return high;
	}
	return UINT64_MAX;
}

/* "inline up to 4 KiB, then direct" */
static void print_ranges(const struct cli_plan *choices)
{
	char bytes[32];
	uint64_t from = 0;

	for (;;) {
		enum plan_algorithm now = cli_plan_choose(choices, from, PLAN_NONE);
		uint64_t next = next_change(choices, from, now);
		if (next == UINT64_MAX) {
			printf("%s%s%s", from ? "then " : "", plan_algorithm_name(now),
			       from ? "" : " for every size");
			return;
		}
		print_bytes(next - 1, bytes, sizeof bytes);
		printf("%s%s up to %s, ", from ? "then " : "", plan_algorithm_name(now), bytes);
		from = next;
	}
}

/* Where the data goes: "entries", "messages" or from buffer to buffer. */
static const char *way_text(enum plan_algorithm algorithm)
{
	switch (algorithm) {
	case PLAN_INLINE:
		return "data travels in entries";
	case PLAN_DIRECT:
	case PLAN_PULL:
		return "peers read or write the buffers themselves";
	case PLAN_RAILS:
		return "on each host peers read the buffers, between hosts data travels in messages";
	default:
		return "data travels in messages";
	}
}

/* "4 blocks of about 256 KiB each", "4 parts of 1 MiB each". */
static void print_blocks(const struct cli_plan *choices, const struct plan *plan)
{
	char bytes[32];
	bool cut = plan->layout[PLAN_INPUT] == PLAN_LAYOUT_BLOCKS;
	bool gathers = plan->layout[PLAN_INPUT] == PLAN_LAYOUT_PART; /* each rank has one part */
	unsigned share = gathers ? 1 : plan->blocks;
	printf("  %u %s%s", plan->blocks, cut ? "block" : "part", plan->blocks == 1 ? "" : "s");
	if (plan->blocks > 1) {
		uint64_t most = choices->bytes / share + (choices->bytes % share != 0);
		print_bytes(most, bytes, sizeof bytes);
		printf(" of %s%s each", gathers ? "" : "about ", bytes);
	}
	printf("; %s\n", way_text((enum plan_algorithm)plan->algorithm));
}

static void print_head(const struct cli_plan *choices, const struct plan *plan)
{
	const struct plan_params *params = &choices->params;
	bool gathers = plan->layout[PLAN_INPUT] == PLAN_LAYOUT_PART;
	bool gives = coll_table[params->collective].root == COLL_ROOT_SENDS;
	char bytes[32];

	print_bytes(choices->bytes, bytes, sizeof bytes);
	printf("%s", plan_collective_name(params->collective));
	if (params->collective != COLL_BARRIER)
		printf(" of %s", bytes);
	printf(" %s %d rank%s", gathers ? "from each of" : "on", params->size,
	       params->size == 1 ? "" : "s");
	if (choices->hosts.count > 0)
		printf(" of %d host%s", choices->hosts.count, choices->hosts.count == 1 ? "" : "s");
	if (plan_has_root(params->collective))
		printf(" %s rank %d", gives ? "from" : "to", params->root);
	printf(": %s\n", plan_algorithm_name(params->algorithm));

	if (choices->asked_algorithm)
		printf("  chosen by --algorithm; without it: ");
	else if (choices->set_algorithm)
		printf("  chosen by LOCKSTEP_ALGORITHM; without it: ");
	else
		printf("  chosen by size: ");
	print_ranges(choices);
	putchar('\n');
	if (params->collective != COLL_BARRIER)
		print_blocks(choices, plan);
}

static const char *host_of(const struct cli_plan *choices, int rank)
{
	return choices->hosts.hosts[choices->host_of[rank]].name;
}

/* What the plan asks of the rank: "rank 1: peers read its input, needs scratch". */
static void print_rank(const struct cli_plan *choices, const struct plan *plan)
{
	static const char *const inputs[] = {"", "peers read its input", "its input is mapped"};
	static const char *const outputs[] = {"", "peers read its output", "its output is mapped"};
	const char *notes[] = {inputs[plan->reach[PLAN_INPUT]], outputs[plan->reach[PLAN_OUTPUT]],
			       plan->needs_scratch ? "needs scratch" : ""};
	const char *mark = ": ";

	printf("\nrank %u", plan->rank);
	if (choices->hosts.count > 0) {
		printf("%son host %s", mark, host_of(choices, plan->rank));
		mark = ", ";
	}
	for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
		if (*notes[i]) {
			printf("%s%s", mark, notes[i]);
			mark = ", ";
		}
	putchar('\n');
}

static void print_step(const struct cli_plan *choices, const struct plan *plan, uint32_t at)
{
	const struct plan_step *step = &plan->steps[at];
	bool sends = step->kind == PLAN_STEP_SEND, receives = step->kind == PLAN_STEP_RECV;
	char text[PLAN_TEXT_BYTES];

	plan_step_text(plan, step, text, sizeof text);
	printf("  %3u  %s", at, text);
	if ((sends || receives) && choices->host_of[step->peer] != choices->host_of[plan->rank])
		printf(", %s host %s", sends ? "to" : "from", host_of(choices, step->peer));
	putchar('\n');
}

static void print_plan(const struct cli_plan *choices, const struct plan *plan)
{
	print_rank(choices, plan);
	if (plan->step_count == 0)
		printf("  nothing to do\n");
	for (uint32_t i = 0; i < plan->step_count; i++)
		print_step(choices, plan, i);
}

int cli_plan_print(const struct cli_plan *choices)
{
	struct plan_params params = choices->params;
	int first = choices->rank < 0 ? 0 : choices->rank;
	int last = choices->rank < 0 ? params.size - 1 : choices->rank;
	struct plan_step *steps = calloc(plan_steps_max(&params), sizeof *steps);

	if (!steps) {
		MESSAGE_SAY(MESSAGE_PLAN_FAILED, "there is not enough memory");
		return CLI_FAILED;
	}
	int status = CLI_OK;
	for (params.rank = first; params.rank <= last; params.rank++) {
		struct plan plan;
		if (!plan_build(&params, steps, &plan)) {
			MESSAGE_SAY(MESSAGE_PLAN_FAILED, "the collective refuses these arguments");
			status = CLI_FAILED;
			break;
		}
		if (params.rank == first)
			print_head(choices, &plan);
		print_plan(choices, &plan);
	}
	free(steps);
	return status;
}
