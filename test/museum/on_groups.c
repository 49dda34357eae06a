/* SPDX-License-Identifier: BSD-3-Clause
 * Exhibits of messages and collectives by Lockstep's public calls, in the very order that deadlocks
 * elsewhere. Connections are there when the group is open, messages do not wait for each other, and
 * groups do not, either. */
#include <stdio.h>
#include <stdlib.h>

#include <lockstep/lockstep.h>

#include "exhibits.h"

enum { COUNT = 1100 }; /* of a message that stays with its sender until it is received */

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

static void end(ls_op *op)
{
	must(ls_wait(op, 0));
	ls_op_free(op);
}

/* Each rank sends to its right neighbour before it receives from the left one. */
void groups_lazy_pairs(struct scene *scene, ls_group *world, int rank)
{
	int32_t mine[COUNT], got[COUNT];
	int right = (rank + 1) % 3, left = (rank + 2) % 3;
	ls_op *op;
	(void)scene;
	for (int round = 0; round < EXHIBIT_ROUNDS; round++) {
		fill(mine, 10 * round + rank);
		must(ls_isend(world, mine, COUNT, LS_INT32, right, NULL, &op));
		must(ls_recv(world, got, COUNT, LS_INT32, left, NULL));
		end(op);
		check(got, 10 * round + left);
	}
}

/* Rank 0 sends to rank 1, then to rank 2; rank 1 first receives from rank 2, which waits for rank
 * 0's second message. With LOCKSTEP_P2P=serial this deadlocks. */
void groups_serial_lane(struct scene *scene, ls_group *world, int rank)
{
	int32_t data[COUNT];
	ls_op *sends[2];
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
		for (int i = rank == 1 ? 2 : 0; i >= 0; i -= 2) { /* from rank 2, and from rank 0 */
			must(ls_recv(world, data, COUNT, LS_INT32, i, NULL));
			check(data, round);
		}
		if (rank == 2)
			must(ls_send(world, data, COUNT, LS_INT32, 1, NULL));
	}
}

/* Each group has a stream of its own, and rank 1 puts the groups' collectives there the other way
 * round. */
void groups_opposite_order(struct scene *scene, ls_group *world, int rank)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	int32_t data[2][COUNT];
	ls_group *groups[2];
	ls_op *ops[2];
	for (int g = 0; g < 2; g++)
		must(ls_group_split(world, 0, rank, &groups[g]));
	for (int round = 0; round < EXHIBIT_ROUNDS; round++) {
		for (int i = 0; i < 2; i++) {
			int g = rank == 1 ? !i : i;
			struct ls_op_options options = {
				.size = sizeof options, .stream = here->streams[g], .op = &ops[g]};
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

/* ---- before and after ---- */

void groups_opened(struct scene *scene, const struct exhibit *exhibit, int rank)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	if (!exhibit->device)
		return;
	here->sim = lockstep_sim();
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
