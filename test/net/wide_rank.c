/* SPDX-License-Identifier: BSD-3-Clause
 * wide_rank [VICTIM]: one rank of a job of more than 64 ranks, which all run this. Every collective
 * with checked results, messages between ranks below and above 64, and groups of both. At last rank
 * VICTIM kills itself, and all others must be told that it was this rank. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lockstep/lockstep.h>

#define MUST(condition)                                                                     \
	do {                                                                                \
		if (!(condition)) {                                                         \
			fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                            \
		}                                                                           \
	} while (0)
#define DONE(call) MUST((call) == LS_OK)

enum { SHORT = 5, LONG = 600, LINE = 64 };

/* A group, and room for a part of LONG elements from and to each of its ranks. */
struct wide {
	ls_group *group;
	int rank, size, last;
	int64_t *send, *recv;
	uint64_t *counts, *recv_counts;
};

static void open_buffers(struct wide *wide, ls_group *group)
{
	size_t size = (size_t)ls_group_size(group);
	*wide = (struct wide){.group = group,
			      .rank = ls_group_rank(group),
			      .size = (int)size,
			      .last = (int)size - 1};
	wide->send = calloc(size * LONG, sizeof *wide->send);
	wide->recv = calloc(size * LONG, sizeof *wide->recv);
	wide->counts = calloc(size, sizeof *wide->counts);
	wide->recv_counts = calloc(size, sizeof *wide->recv_counts);
	MUST(wide->send && wide->recv && wide->counts && wide->recv_counts);
}

static void close_buffers(struct wide *wide)
{
	free(wide->send);
	free(wide->recv);
	free(wide->counts);
	free(wide->recv_counts);
}

/* What rank `from` gives as element i of its part for rank `to`. */
static int64_t item(int from, int to, uint64_t i)
{
	return (int64_t)i * 1000003 + from * 1000 + to;
}

/* The sum of that over all ranks `from`. */
static int64_t sum(const struct wide *wide, int to, uint64_t i)
{
	int64_t size = wide->size;
	return size * item(0, to, i) + 1000 * (size * (size - 1) / 2);
}

/* Part `to` of what this rank gives, of `count` elements at *at. */
static int64_t *give(const struct wide *wide, int64_t *at, int to, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		at[i] = item(wide->rank, to, i);
	return at + count;
}

/* Whether the part at *at is what rank `from` has given for `to`. */
static const int64_t *got(const int64_t *at, int from, int to, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		MUST(at[i] == item(from, to, i));
	return at + count;
}

static const int64_t *got_sum(const struct wide *wide, const int64_t *at, int to, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		MUST(at[i] == sum(wide, to, i));
	return at + count;
}

static void clear(const struct wide *wide)
{
	memset(wide->recv, 0xee, (size_t)wide->size * LONG * sizeof *wide->recv);
}

/* ---- collectives ---- */

static void one_for_all(const struct wide *wide, uint64_t count)
{
	int root = wide->size > 70 ? 70 : wide->last;
	give(wide, wide->send, 0, count);
	clear(wide);
	DONE(ls_allreduce(wide->group, wide->send, wide->recv, count, LS_INT64, LS_SUM, NULL));
	got_sum(wide, wide->recv, 0, count);
	clear(wide);
	DONE(ls_reduce(wide->group, wide->send, wide->recv, count, LS_INT64, LS_SUM, root, NULL));
	if (wide->rank == root)
		got_sum(wide, wide->recv, 0, count);
	clear(wide);
	DONE(ls_broadcast(wide->group, wide->send, wide->recv, count, LS_INT64, root, NULL));
	got(wide->recv, root, 0, count);
	struct ls_buffers two[] = {{wide->send, wide->recv, count},
				   {wide->send, wide->recv + LONG, 1}};
	clear(wide);
	DONE(ls_allreduce_many(wide->group, two, 2, LS_INT64, LS_SUM, NULL));
	got_sum(wide, wide->recv, 0, count);
	got_sum(wide, wide->recv + LONG, 0, 1);
	clear(wide);
	DONE(ls_broadcast_many(wide->group, two, 2, LS_INT64, wide->last, NULL));
	got(wide->recv, wide->last, 0, count);
	got(wide->recv + LONG, wide->last, 0, 1);
}

static void gathers(const struct wide *wide, uint64_t count)
{
	const int64_t *at = wide->recv;
	int root = wide->size > 65 ? 65 : 0;
	give(wide, wide->send, 0, count);
	clear(wide);
	DONE(ls_allgather(wide->group, wide->send, wide->recv, count, LS_INT64, NULL));
	for (int q = 0; q < wide->size; q++)
		at = got(at, q, 0, count);
	clear(wide);
	DONE(ls_gather(wide->group, wide->send, wide->recv, count, LS_INT64, root, NULL));
	at = wide->recv;
	for (int q = 0; q < wide->size && wide->rank == root; q++)
		at = got(at, q, 0, count);
	for (int q = 0; q < wide->size; q++)
		wide->counts[q] = (uint64_t)q % 4 * count / 4;
	give(wide, wide->send, 0, wide->counts[wide->rank]);
	clear(wide);
	DONE(ls_allgatherv(wide->group, wide->send, wide->recv, wide->counts, LS_INT64, NULL));
	at = wide->recv;
	for (int q = 0; q < wide->size; q++)
		at = got(at, q, 0, wide->counts[q]);
	clear(wide);
	DONE(ls_gatherv(wide->group, wide->send, wide->recv, wide->counts, LS_INT64, root, NULL));
	at = wide->recv;
	for (int q = 0; q < wide->size && wide->rank == root; q++)
		at = got(at, q, 0, wide->counts[q]);
	struct ls_buffers one = {wide->send, wide->recv, count / 2};
	give(wide, wide->send, 0, count);
	DONE(ls_allgather_many(wide->group, &one, 1, LS_INT64, NULL));
	got(wide->recv + (uint64_t)wide->last * (count / 2), wide->last, 0, count / 2);
}

static void scatters(const struct wide *wide, uint64_t count)
{
	int64_t *to = wide->send;
	int root = wide->last;
	for (int q = 0; q < wide->size; q++)
		to = give(wide, to, q, count);
	clear(wide);
	DONE(ls_scatter(wide->group, wide->send, wide->recv, count, LS_INT64, root, NULL));
	got(wide->recv, root, wide->rank, count);
	clear(wide);
	DONE(ls_reduce_scatter(wide->group, wide->send, wide->recv, count, LS_INT64, LS_SUM, NULL));
	got_sum(wide, wide->recv, wide->rank, count);
	struct ls_buffers one = {wide->send, wide->recv, count};
	clear(wide);
	DONE(ls_reduce_scatter_many(wide->group, &one, 1, LS_INT64, LS_SUM, NULL));
	got_sum(wide, wide->recv, wide->rank, count);
	clear(wide);
	DONE(ls_alltoall(wide->group, wide->send, wide->recv, count, LS_INT64, NULL));
	const int64_t *at = wide->recv;
	for (int q = 0; q < wide->size; q++)
		at = got(at, q, wide->rank, count);
	to = wide->send;
	for (int q = 0; q < wide->size; q++) {
		wide->counts[q] = (uint64_t)(q % 3) * count / 3;
		to = give(wide, to, q, wide->counts[q]);
	}
	uint64_t mine = wide->counts[wide->rank];
	clear(wide);
	DONE(ls_scatterv(wide->group, wide->send, wide->recv, wide->counts, LS_INT64, root, NULL));
	got(wide->recv, root, wide->rank, mine);
	clear(wide);
	DONE(ls_reduce_scatterv(wide->group, wide->send, wide->recv, wide->counts, LS_INT64, LS_SUM,
				NULL));
	got_sum(wide, wide->recv, wide->rank, mine);
	for (int q = 0; q < wide->size; q++)
		wide->recv_counts[q] = mine;
	clear(wide);
	DONE(ls_alltoallv(wide->group, wide->send, wide->counts, wide->recv, wide->recv_counts,
			  LS_INT64, NULL));
	at = wide->recv;
	for (int q = 0; q < wide->size; q++)
		at = got(at, q, wide->rank, mine);
}

static void collectives(ls_group *group, uint64_t count)
{
	struct wide wide;
	open_buffers(&wide, group);
	one_for_all(&wide, count);
	gathers(&wide, count);
	scatters(&wide, count / 8 + 1);
	DONE(ls_barrier(group, NULL));
	close_buffers(&wide);
}

static void all_add(ls_group *group)
{
	struct wide wide;
	open_buffers(&wide, group);
	give(&wide, wide.send, 0, LONG);
	DONE(ls_allreduce(group, wide.send, wide.recv, LONG, LS_INT64, LS_SUM, NULL));
	got_sum(&wide, wide.recv, 0, LONG);
	close_buffers(&wide);
}

/* ---- messages ---- */

/* With the rank that is half of all away: both ways at once, in each size of message. */
static void exchange(const struct wide *wide)
{
	static const uint64_t counts[] = {1, 100, 3000, 40000};
	int half = wide->size / 2, peer = wide->rank < half ? wide->rank + half : wide->rank - half;
	int64_t *send = calloc(40000, sizeof *send), *recv = calloc(40000, sizeof *recv);
	MUST(send && recv && wide->size % 2 == 0);
	for (int i = 0; i < 4; i++) {
		ls_request *op;
		give(wide, send, peer, counts[i]);
		DONE(ls_irecv(wide->group, recv, counts[i], LS_INT64, peer, NULL, &op));
		DONE(ls_send(wide->group, send, counts[i], LS_INT64, peer, NULL));
		DONE(ls_wait(op, 0));
		ls_request_free(op);
		got(recv, peer, wide->rank, counts[i]);
	}
	free(send);
	free(recv);
}

/* All send to the last rank, which does not know who comes first; it answers each. */
static void from_any(const struct wide *wide)
{
	int64_t mine = wide->rank, seen = 0;
	for (int i = 0; i < wide->size - 1 && wide->rank == wide->last; i++) {
		struct ls_message met = {.size = sizeof met};
		struct ls_call_options options = {
			.size = sizeof options, .tag = LS_ANY_TAG, .message = &met};
		int64_t number;
		DONE(ls_recv(wide->group, &number, 1, LS_INT64, LS_ANY_SOURCE, &options));
		MUST(number == met.source);
		seen += number;
		DONE(ls_send(wide->group, &number, 1, LS_INT64, met.source, NULL));
	}
	if (wide->rank == wide->last) {
		MUST(seen == (int64_t)wide->last * (wide->last - 1) / 2);
		return;
	}
	DONE(ls_send(wide->group, &mine, 1, LS_INT64, wide->last, NULL));
	DONE(ls_recv(wide->group, &seen, 1, LS_INT64, wide->last, NULL));
	MUST(seen == mine);
}

/* ---- groups ---- */

static void groups(ls_group *world)
{
	int rank = ls_group_rank(world), size = ls_group_size(world);
	ls_group *odd, *few, *some;
	int list[] = {size - 1, 3, 64, 63, 65, 0};
	DONE(ls_group_split(world, rank % 2, -rank, &odd)); /* in reverse order */
	MUST(ls_group_rank_in(odd, 0, world) == size - 2 + rank % 2);
	all_add(odd);
	bool in = false;
	for (int i = 0; i < 6; i++)
		in |= list[i] == rank;
	ls_status status = ls_group_from_ranks(world, list, 6, &few);
	MUST(status == (in ? LS_OK : LS_NOT_MEMBER));
	if (in) {
		MUST(ls_group_rank_in(few, 2, world) == 64);
		collectives(few, SHORT);
		ls_group_close(few);
	}
	if (in && rank != 0) {
		DONE(ls_group_from_members(world, list, 5, NULL, &some));
		all_add(some);
		ls_group_close(some);
	}
	int *every = malloc((size_t)size * sizeof *every);
	MUST(every);
	for (int i = 0; i < size; i++)
		every[i] = i;
	/* The first ones wait for more ranks than one wait can name. */
	DONE(ls_group_from_members(world, every, size, NULL, &some));
	all_add(some);
	ls_group_close(some);
	free(every);
	ls_group_close(odd);
}

/* ---- the end of a rank ---- */

static void lose(ls_group *world, int victim)
{
	struct ls_failure failure = {.size = sizeof failure};
	double one = 1, all;
	/* Others may still be in this barrier when the victim dies behind it. */
	ls_status status = ls_barrier(world, NULL);
	if (ls_group_rank(world) == victim) {
		MUST(status == LS_OK);
		raise(SIGKILL);
	}
	while (status == LS_OK)
		status = ls_allreduce(world, &one, &all, 1, LS_FLOAT64, LS_SUM, NULL);
	MUST(status == LS_PEER_DIED);
	MUST(ls_group_failure(world, &failure) == LS_OK);
	MUST(failure.status == LS_PEER_DIED);
	printf("told of rank %d\n", failure.rank);
}

int main(int argc, char **argv)
{
	ls_group *world;
	DONE(ls_group_open(NULL, &world));
	struct wide wide;
	open_buffers(&wide, world);
	MUST(wide.size > LINE);
	collectives(world, LONG);
	exchange(&wide);
	from_any(&wide);
	groups(world);
	printf("all right\n");
	fflush(stdout);
	if (argc > 1)
		lose(world, (int)strtol(argv[1], NULL, 10));
	close_buffers(&wide);
	ls_group_close(world);
	return 0;
}
