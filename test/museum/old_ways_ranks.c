/* SPDX-License-Identifier: BSD-3-Clause
 * Exhibits whose ranks wait for each other in Lockstep, and one in which a rank is a forked
 * child. */
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "old_ways.h"

enum { MESSAGE_FLOATS = 1 << 20 };

/* ---- lazy-pairs ---- */

SHOWN void make_pair(int other)
{
	int ranks[2] = {my_rank < other ? my_rank : other, my_rank < other ? other : my_rank};
	ls_group *pair;
	must_status(ls_group_from_members(world, ranks, 2, NULL, &pair));
}

void lazy_pairs(void)
{
	edge();
	make_pair((my_rank + 1) % 3); /* to send */
	make_pair((my_rank + 2) % 3); /* to receive */
}

/* ---- serial-lane ---- */

void serial_lane(void)
{
	static float values[2][MESSAGE_FLOATS];
	ls_request *sends[2];
	edge();
	if (my_rank == 0) {
		for (int i = 0; i < 2; i++)
			must_status(ls_isend(world, values[i], MESSAGE_FLOATS, LS_FLOAT32, i + 1,
					     NULL, &sends[i]));
		for (int i = 0; i < 2; i++)
			must_status(ls_wait(sends[i], 0));
		for (int i = 0; i < 2; i++)
			ls_request_free(sends[i]);
	} else if (my_rank == 1) {
		must_status(ls_recv(world, values[0], MESSAGE_FLOATS, LS_FLOAT32, 2, NULL));
		must_status(ls_recv(world, values[0], MESSAGE_FLOATS, LS_FLOAT32, 0, NULL));
	} else {
		must_status(ls_recv(world, values[0], MESSAGE_FLOATS, LS_FLOAT32, 0, NULL));
		must_status(ls_send(world, values[0], MESSAGE_FLOATS, LS_FLOAT32, 1, NULL));
	}
}

/* ---- opposite-groups ---- */

/* As opposite-order, with Lockstep's all-reduces. */
void opposite_groups(void)
{
	ls_group *groups[2];
	float value = 0;
	for (int i = 0; i < 2; i++)
		must_status(ls_group_split(world, 0, 0, &groups[i]));
	edge();
	for (int i = 0; i < 2; i++)
		must_status(ls_allreduce(groups[my_rank == 1 ? !i : i], &value, &value, 1,
					 LS_FLOAT32, LS_SUM, NULL));
}

/* ---- fork-with-lock ---- */

SHOWN void *allocate_for_ever(void *unused)
{
	pthread_mutex_lock(&allocator_lock);
	meet();
	for (;;)
		pause();
	return unused;
}

/* The child is the rank, as a worker process is. */
void fork_with_lock_held(void)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, allocate_for_ever, NULL) != 0)
		exit(2);
	meet();
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		return;
	}
	int status = 0;
	waitpid(child, &status, 0);
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
}

SHOWN void allocate_block(void)
{
	pthread_mutex_lock(&allocator_lock);
	pthread_mutex_unlock(&allocator_lock);
}

void allocate(void)
{
	edge();
	allocate_block();
}
