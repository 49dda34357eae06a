/* SPDX-License-Identifier: BSD-3-Clause
 * A rank for the tests of the program: it sums numbers with all others again and again, and at one
 * round one rank does something else: ranks_demo [--rounds N] [--linger] [--handles] [--phases]
 * [--messages] [--pairs] [FAULT RANK ROUND]. Rounds count from 1; round 0 is before the group.
 * Prints "round N" after the rounds 1, 2, 4, …, or "failed STATUS". */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

enum { COUNT = 1000 };

struct plan {
	uint64_t rounds; /* 0: no end */
	bool linger;     /* after a failure stay with the group open */
	bool handles;    /* a failure is all right: exit with 0 */
	bool phases;     /* data/image, in data, then backward, in which the round is */
	bool messages;   /* before each round one to the next rank, with the tag 7 */
	/* in a group of two neighbours, of which the odd one comes first; RANK is that there */
	bool pairs;
	const char *fault;
	int rank;
	uint64_t round;
};

static ls_status receive_in_a_circle(ls_group *group)
{
	int size = ls_group_size(group);
	int from = (ls_group_rank(group) + size - 1) % size;
	float value;

	return ls_recv(group, &value, 1, LS_FLOAT32, from, NULL);
}

static ls_status send_in_a_circle(ls_group *group)
{
	struct ls_call_options options = {.size = sizeof options, .tag = 7, .label = "circle.py:3"};
	int size = ls_group_size(group), rank = ls_group_rank(group);
	double value = rank;

	ls_status status = ls_send(group, &value, 1, LS_FLOAT64, (rank + 1) % size, &options);
	if (status == LS_OK)
		status = ls_recv(group, &value, 1, LS_FLOAT64, (rank + size - 1) % size, &options);
	return status;
}

/* All but `rank` close the group and end; only then `rank` does. They have given it something in a
 * reduce, or, with `pending`, it leaves a receive under way. */
static ls_status leave_out(ls_group *group, int rank, float *values, bool pending)
{
	static int64_t never;
	struct ls_call_options options = {.size = sizeof options, .tag = 9};
	int64_t pid = getpid();
	ls_request *op;
	ls_status status = LS_OK;

	if (ls_group_rank(group) != rank) {
		status = ls_send(group, &pid, 1, LS_INT64, rank, NULL);
		return status != LS_OK || pending ? status
						  : ls_reduce(group, values, values, 10, LS_FLOAT32,
							      LS_SUM, rank, NULL);
	}
	if (pending)
		status = ls_irecv(group, &never, 1, LS_INT64, rank, &options, &op);
	for (int q = 0; status == LS_OK && q < ls_group_size(group); q++) {
		if (q == rank)
			continue;
		status = ls_recv(group, &pid, 1, LS_INT64, q, NULL);
		struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0),
				     .events = POLLIN};
		if (status == LS_OK && (end.fd < 0 || poll(&end, 1, -1) != 1))
			exit(99);
	}
	return status;
}

static void start_workers(void)
{
	for (int i = 0; i < 2; i++)
		if (fork() == 0)
			for (;;)
				pause();
}

/* True if the round is over with it. */
static bool misbehave(ls_group *group, const char *fault, float *values, ls_status *status)
{
	if (strncmp(fault, "stop-", 5) == 0)
		raise(SIGSTOP);
	if (strcmp(fault, "leave") == 0 || strcmp(fault, "stop-leave") == 0) {
		ls_group_close(group);
		exit(0);
	}
	if (strcmp(fault, "stop-abort-exit") == 0) {
		*status = ls_group_abort(group, "its data ran out");
		raise(SIGSTOP);
	}
	if (strcmp(fault, "exit") == 0 || strcmp(fault, "stop-exit") == 0 ||
	    strcmp(fault, "stop-abort-exit") == 0)
		_exit(7);
	if (strcmp(fault, "kill") == 0)
		raise(SIGKILL);
	if (strcmp(fault, "stop") == 0)
		raise(SIGSTOP);
	if (strcmp(fault, "away") == 0)
		for (;;)
			pause();
	if (strcmp(fault, "workers") == 0) {
		start_workers();
		raise(SIGKILL);
	}
	if (strcmp(fault, "count") == 0) {
		*status = ls_allreduce(group, values, values, COUNT / 2, LS_FLOAT32, LS_SUM, NULL);
		return true;
	}
	return false;
}

static ls_status one_round(ls_group *group, const struct plan *plan, uint64_t round, float *values)
{
	ls_status status = LS_OK;

	if (plan->fault && plan->round == round) {
		if (strcmp(plan->fault, "circle") == 0)
			return receive_in_a_circle(group);
		bool pending = strcmp(plan->fault, "pending") == 0;
		if (pending || strcmp(plan->fault, "missing") == 0)
			return leave_out(group, plan->rank, values, pending);
		if (plan->rank == ls_group_rank(group) &&
		    misbehave(group, plan->fault, values, &status))
			return status;
	}
	if (plan->messages)
		status = send_in_a_circle(group);
	if (status != LS_OK)
		return status;
	return ls_allreduce(group, values, values, COUNT, LS_FLOAT32, LS_MAX, NULL);
}

static ls_status load_data(ls_group *group)
{
	static const char *const names[] = {"data", "data/image"};
	ls_status status = LS_OK;

	for (int i = 0; status == LS_OK && i < 2; i++)
		status = ls_phase_begin(group, names[i]);
	for (int i = 1; status == LS_OK && i >= 0; i--)
		status = ls_phase_end(group, names[i]);
	return status;
}

static ls_status one_round_in_phases(ls_group *group, const struct plan *plan, uint64_t round,
				     float *values)
{
	ls_status status = load_data(group);

	if (status == LS_OK)
		status = ls_phase_begin(group, "backward");
	if (status == LS_OK)
		status = one_round(group, plan, round, values);
	if (status == LS_OK)
		status = ls_phase_end(group, "backward");
	return status;
}

static int fail(ls_status status, bool linger)
{
	printf("failed %s\n", ls_status_name(status));
	if (linger)
		for (;;)
			pause();
	return 1;
}

static int loop(ls_group *group, const struct plan *plan)
{
	void *values;
	ls_status status = ls_alloc(group, COUNT * sizeof(float), &values);

	if (status != LS_OK)
		return fail(status, false);
	memset(values, 0, COUNT * sizeof(float));
	for (uint64_t round = 1; plan->rounds == 0 || round <= plan->rounds; round++) {
		status = plan->phases ? one_round_in_phases(group, plan, round, values)
				      : one_round(group, plan, round, values);
		if (status != LS_OK)
			return fail(status, plan->linger) && !plan->handles;
		if ((round & (round - 1)) == 0)
			printf("round %llu\n", (unsigned long long)round);
	}
	return 0;
}

static void read_arguments(int argc, char **argv, struct plan *out)
{
	int next = 1;

	*out = (struct plan){.rank = -1};
	for (; next < argc && argv[next][0] == '-'; next++) {
		if (strcmp(argv[next], "--linger") == 0)
			out->linger = true;
		else if (strcmp(argv[next], "--handles") == 0)
			out->handles = true;
		else if (strcmp(argv[next], "--phases") == 0)
			out->phases = true;
		else if (strcmp(argv[next], "--messages") == 0)
			out->messages = true;
		else if (strcmp(argv[next], "--pairs") == 0)
			out->pairs = true;
		else if (strcmp(argv[next], "--rounds") == 0 && next + 1 < argc)
			out->rounds = strtoull(argv[++next], NULL, 10);
		else
			exit(99);
	}
	if (next + 3 == argc) {
		out->fault = argv[next];
		out->rank = (int)strtol(argv[next + 1], NULL, 10);
		out->round = strtoull(argv[next + 2], NULL, 10);
	} else if (next != argc) {
		exit(99);
	}
}

int main(int argc, char **argv)
{
	struct plan plan;
	ls_group *group;
	const char *rank = getenv("RANK");

	setvbuf(stdout, NULL, _IOLBF, 0);
	read_arguments(argc, argv, &plan);
	if (plan.fault && plan.round == 0 && rank && strtol(rank, NULL, 10) == plan.rank) {
		ls_status ignored;
		misbehave(NULL, plan.fault, NULL, &ignored);
	}
	ls_status status = ls_group_open(NULL, &group);
	if (status != LS_OK)
		return fail(status, false);
	ls_group *pair = group;
	int number = ls_group_rank(group);
	if (plan.pairs)
		status = ls_group_split(group, number / 2, -number, &pair);
	if (status != LS_OK)
		return fail(status, false);
	if (plan.pairs && number < 2)
		plan.fault = NULL;
	int result = loop(pair, &plan);
	if (pair != group && result == 0)
		ls_group_close(pair);
	ls_group_close(group);
	return result;
}
