/* SPDX-License-Identifier: BSD-3-Clause
 * Exhibits of messages and collectives with Lockstep's public calls, in the very order that
 * deadlocks elsewhere. All connections exist when the group is open, and neither messages nor
 * groups wait for each other. A stream waits for words that Lockstep stores, also when a group
 * fails; so a thread that waits for the device then continues. */
#include <stdio.h>
#include <stdlib.h>

#include <lockstep/lockstep.h>

#include "exhibits.h"

enum { COUNT = 1100 };  /* of a message that stays with its sender until it is received */
enum { LIMIT_MS = 50 }; /* for waits that must end by their time limit */

static void must(ls_status status)
{
	if (status == LS_OK)
		return;
	fprintf(stderr, "museum: %s\n", ls_status_name(status));
	abort();
}

static void fill(int32_t *data, int32_t value)
{
	for (int i = 0; i < COUNT; i++)
		data[i] = value;
}

static void check(const int32_t *data, int32_t value)
{
	for (int i = 0; i < COUNT; i++)
		if (data[i] != value)
			must(LS_INTERNAL);
}

static void end(ls_request *op)
{
	must(ls_wait(op, 0));
	ls_request_free(op);
}

/* Each rank sends to its right neighbour before it receives from the left one. */
void groups_lazy_pairs(struct scene *scene, ls_group *world, int rank)
{
	int32_t mine[COUNT], got[COUNT];
	int right = (rank + 1) % 3, left = (rank + 2) % 3;
	ls_request *op;
	(void)scene;
	for (int round = 0; round < EXHIBIT_ROUNDS; round++) {
		fill(mine, 10 * round + rank);
		must(ls_isend(world, mine, COUNT, LS_INT32, right, NULL, &op));
		must(ls_recv(world, got, COUNT, LS_INT32, left, NULL));
		end(op);
		check(got, 10 * round + left);
	}
}

/* Rank 0 sends to rank 1, then to rank 2. Rank 1 first receives from rank 2, which waits for rank
 * 0's second message. With LOCKSTEP_P2P=serial this deadlocks. */
void groups_serial_lane(struct scene *scene, ls_group *world, int rank)
{
	int32_t data[COUNT];
	ls_request *sends[2];
	(void)scene;
	for (int round = 0; round < EXHIBIT_ROUNDS; round++) {
		if (rank == 0) {
			fill(data, round);
			for (int i = 0; i < 2; i++)
				must(ls_isend(world, data, COUNT, LS_INT32, i + 1, NULL, &sends[i]));
			for (int i = 0; i < 2; i++)
				end(sends[i]);
			continue;
		}
		/* from rank 2, then from rank 0 */
		for (int i = rank == 1 ? 2 : 0; i >= 0; i -= 2) {
			must(ls_recv(world, data, COUNT, LS_INT32, i, NULL));
			check(data, round);
		}
		if (rank == 2)
			must(ls_send(world, data, COUNT, LS_INT32, 1, NULL));
	}
}

/* Each group has a stream of its own, and rank 1 enqueues the groups' collectives in the other
 * order. */
void groups_opposite_order(struct scene *scene, ls_group *world, int rank)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	int32_t data[2][COUNT];
	ls_group *groups[2];
	ls_request *ops[2];
	for (int g = 0; g < 2; g++)
		must(ls_group_split(world, 0, rank, &groups[g]));
	for (int round = 0; round < EXHIBIT_ROUNDS; round++) {
		for (int i = 0; i < 2; i++) {
			int g = rank == 1 ? !i : i;
			struct ls_call_options options = {.size = sizeof options,
							  .stream = here->streams[g],
							  .request = &ops[g]};
			fill(data[g], 10 * round + g + rank);
			must(ls_allreduce(groups[g], data[g], data[g], COUNT, LS_INT32, LS_SUM,
					  &options));
		}
		for (int g = 0; g < 2; g++) {
			end(ops[g]);
			check(data[g], 20 * round + 2 * g + 1);
		}
	}
	for (int g = 0; g < 2; g++)
		ls_group_close(groups[g]);
}

/* ---- waits for the device ---- */

/* On the stream; both ranks call it. */
static void sum(struct exhibit_rank *here, ls_group *group, int stream, int32_t *data,
		ls_request **op)
{
	struct ls_call_options options = {
		.size = sizeof options, .stream = here->streams[stream], .request = op};
	fill(data, 1);
	must(ls_allreduce(group, data, data, COUNT, LS_INT32, LS_SUM, &options));
}

/* Rank 0 would send the message that rank 1 receives only after an error, or after its device. So
 * it never comes. */
static void receive_in_vain(ls_group *world, ls_status expected)
{
	int32_t got;
	struct ls_call_options limit = {.size = sizeof limit, .timeout_ms = LIMIT_MS};
	if (ls_recv(world, &got, 1, LS_INT32, 0, &limit) != expected)
		must(LS_INTERNAL);
}

static void end_failed(ls_request *op, ls_status expected)
{
	if (ls_wait(op, 0) != expected)
		must(LS_INTERNAL);
	ls_request_free(op);
}

/* With half of the seeds rank 0 reports its error by ls_group_abort, before it waits for the
 * stream. With the others it waits first, as elsewhere; then the time limit of rank 1 fails the
 * group. */
void groups_abort_in_error_path(struct scene *scene, ls_group *world, int rank)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	bool tells = scene->seed % 2 == 0;
	ls_status expected = tells ? LS_ABORTED : LS_TIMED_OUT;
	int32_t data[COUNT];
	ls_request *op;
	if (rank == 1) {
		receive_in_vain(world, expected);
		return;
	}
	sum(here, world, 0, data, &op);
	if (tells)
		must(ls_group_abort(world, "an error of its own"));
	exhibit_must(sim_stream_sync(here->streams[0]));
	end_failed(op, expected);
}

/* With half of the seeds the second launch is an operation of Lockstep, of a kind that has not run
 * yet. It needs no kernel that would have to be loaded. */
static void launch_another(struct exhibit_rank *here, ls_group *world, int rank)
{
	int32_t data[2][COUNT], message = 0;
	ls_group *other;
	ls_request *ops[2];
	must(ls_group_split(world, 0, rank, &other));
	if (rank == 1)
		must(ls_recv(world, &message, 1, LS_INT32, 0, NULL));
	sum(here, world, 0, data[0], &ops[0]);
	struct ls_call_options options = {
		.size = sizeof options, .stream = here->streams[1], .request = &ops[1]};
	fill(data[1], 3);
	must(ls_reduce(other, data[1], data[1], COUNT, LS_INT32, LS_PRODUCT, 0, &options));
	if (rank == 0)
		must(ls_send(world, &message, 1, LS_INT32, 1, NULL));
	for (int i = 0; i < 2; i++)
		end(ops[i]);
	check(data[0], 2);
	if (rank == 0)
		check(data[1], 9);
	ls_group_close(other);
}

/* With the other seeds it is a kernel of the program. The driver waits for the device, and the
 * device for rank 1, whose time limit fails the group. Then the launch returns. */
static void launch_own(struct exhibit_rank *here, ls_group *world, int rank)
{
	int32_t data[COUNT];
	ls_request *op;
	if (rank == 1) {
		receive_in_vain(world, LS_TIMED_OUT);
		return;
	}
	sum(here, world, 0, data, &op);
	exhibit_launch_local(here->streams[1]);
	if (ls_send(world, data, 1, LS_INT32, 1, NULL) != LS_TIMED_OUT)
		must(LS_INTERNAL);
	end_failed(op, LS_TIMED_OUT);
}

void groups_lazy_loading(struct scene *scene, ls_group *world, int rank)
{
	(scene->seed % 2 == 0 ? launch_another : launch_own)(&scene->ranks[rank], world, rank);
}

/* A wait for an operation does not wait for its stream. So it ends, although this thread holds the
 * lock that the function behind the operation takes. */
void groups_callback_lock(struct scene *scene, ls_group *world, int rank)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	int32_t data[COUNT];
	ls_request *op;
	if (rank == 0)
		pthread_mutex_lock(&here->allocator_lock);
	sum(here, world, 0, data, &op);
	if (rank == 0)
		exhibit_must(sim_host(here->streams[0], exhibit_take_lock, &here->allocator_lock));
	end(op);
	check(data, 2);
	if (rank == 0)
		pthread_mutex_unlock(&here->allocator_lock);
	exhibit_must(sim_stream_sync(here->streams[0]));
}

/* ---- before and after ---- */

void groups_opened(struct scene *scene, const struct exhibit *exhibit, int rank)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	if (!exhibit->device)
		return;
	here->sim = lockstep_sim();
	pthread_mutex_init(&here->allocator_lock, NULL);
	for (int i = 0; i < EXHIBIT_STREAMS; i++)
		exhibit_must(sim_stream_open(here->sim, 0, &here->streams[i]));
}

void groups_closed(struct scene *scene, const struct exhibit *exhibit, ls_group *world, int rank)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	for (int i = 0; i < EXHIBIT_STREAMS && exhibit->device; i++) {
		must(ls_device_forget(world, here->streams[i]));
		exhibit_must(sim_stream_close(here->streams[i]));
	}
	ls_group_close(world);
}
