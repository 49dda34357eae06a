/* SPDX-License-Identifier: BSD-3-Clause
 * What does not depend on each other does not wait for each other: rank 0 asks rank 1 for a message
 * that comes last of all, and meanwhile, on the same group, sends to rank 2, receives other
 * messages of rank 1, and takes part in all-reduces. To see it:
 *   lockstep run -n 3 --trace lanes.trace ./lanes && lockstep trace --svg lanes.svg lanes.trace */
#include <lockstep/lockstep.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 4, COUNT = 1 << 20, LAST = 99, OTHER = 5 };

static void must(ls_status status, const char *what)
{
	if (status == LS_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, ls_status_text(status));
	exit(1);
}

int main(void)
{
	ls_group *group;
	must(ls_group_open(NULL, &group), "open");
	int rank = ls_group_rank(group);
	if (ls_group_size(group) != 3) {
		fprintf(stderr, "lanes: start it with three ranks: lockstep run -n 3 ./lanes\n");
		return 2;
	}
	void *memory;
	must(ls_alloc(group, 2 * COUNT * sizeof(float), &memory), "alloc");
	float *numbers = memory, *sums = numbers + COUNT, late = (float)rank;
	for (int i = 0; i < COUNT; i++)
		numbers[i] = 1;
	struct ls_call_options last = {.size = sizeof last, .tag = LAST};
	struct ls_call_options other = {.size = sizeof other, .tag = OTHER};
	ls_request *unanswered = NULL;
	if (rank == 0)
		must(ls_irecv(group, &late, 1, LS_FLOAT32, 1, &last, &unanswered), "receive");
	for (int round = 0; round < ROUNDS; round++) {
		must(ls_allreduce(group, numbers, sums, COUNT, LS_FLOAT32, LS_SUM, NULL), "sum");
		if (rank == 0) {
			must(ls_send(group, numbers, COUNT, LS_FLOAT32, 2, &other), "send");
			must(ls_recv(group, sums, COUNT, LS_FLOAT32, 1, &other), "receive");
		} else if (rank == 1) {
			must(ls_send(group, numbers, COUNT, LS_FLOAT32, 0, &other), "send");
		} else {
			must(ls_recv(group, sums, COUNT, LS_FLOAT32, 0, &other), "receive");
		}
	}
	if (rank == 0 && ls_test(unanswered) != LS_PENDING)
		return 1;
	must(ls_barrier(group, NULL), "barrier");
	if (rank == 1)
		must(ls_send(group, &late, 1, LS_FLOAT32, 0, &last), "send");
	if (rank == 0) {
		must(ls_wait(unanswered, 0), "wait");
		ls_request_free(unanswered);
		printf("%d sums, sends and receives went on while one receive was not answered\n",
		       3 * ROUNDS);
	}
	must(ls_free(group, memory), "free");
	ls_group_close(group);
	return 0;
}
