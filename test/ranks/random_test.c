/* SPDX-License-Identifier: BSD-3-Clause
 * A random program: all ranks run the same sequence of operations of random kinds, sizes, dtypes and sorts
 * of memory, and each result is compared with the reference. With --repeat each turn is another one. */
#include <stdio.h>

#include "tests.h"
#include "values.h"

enum { STEPS = 200, BYTES_MAX = 1 << 18 };

/* The next operation; the same on all ranks but for what `local` decides. */
struct action {
	int kind, root, shift;
	ls_dtype dtype;
	ls_reduce_op op;
	uint64_t count;
	bool plain, in_place; /* differ between ranks */
};

struct program {
	uint64_t common, local; /* generators */
	ls_group *group;
	unsigned char *send[2], *recv[2];
};

static struct action next_action(struct program *program, int size)
{
	struct action action = {.kind = (int)(values_random(&program->common) % 8)};
	uint32_t limit = 1u << values_random(&program->common) % 19;
	action.dtype = (ls_dtype)(values_random(&program->common) % VALUES_DTYPES);
	action.op = (ls_reduce_op)(values_random(&program->common) % VALUES_OPS);
	action.root = (int)(values_random(&program->common) % (uint32_t)size);
	action.shift = (int)(values_random(&program->common) % (uint32_t)size);
	action.count = values_random(&program->common) % limit / ls_dtype_bytes(action.dtype);
	action.plain = values_random(&program->local) % 2;
	action.in_place = values_random(&program->local) % 2;
	return action;
}

static void reduce(struct program *program, const struct action *action, int rank, int size,
		   unsigned seed)
{
	unsigned char *send = program->send[action->plain];
	unsigned char *recv = action->in_place ? send : program->recv[action->plain];
	values_blot(recv, action->count, action->dtype, 0xee);
	values_fill(send, action->count, action->dtype, action->op, rank, seed);
	OK(ls_allreduce(program->group, send, recv, action->count, action->dtype, action->op, NULL));
	values_check_reduced(recv, action->count, action->dtype, action->op, size, seed);
}

static void broadcast(struct program *program, const struct action *action, int rank, unsigned seed)
{
	unsigned char *send = program->send[action->plain];
	unsigned char *recv = action->in_place ? send : program->recv[action->plain];
	values_blot(recv, action->count, action->dtype, 0xee);
	if (rank == action->root)
		values_fill(send, action->count, action->dtype, LS_SUM, rank, seed);
	OK(ls_broadcast(program->group, send, recv, action->count, action->dtype, action->root,
			NULL));
	values_check_from(recv, action->count, action->dtype, action->root, seed);
}

/* Ranks pair up: i with (shift - i) mod size. The lower one sends first; who is its own partner rests. */
static void exchange(struct program *program, const struct action *action, int rank, int size,
		     unsigned seed)
{
	int peer = (action->shift + size - rank) % size;
	unsigned char *send = program->send[action->plain], *recv = program->recv[action->in_place];
	struct ls_op_options options = {.size = sizeof options, .tag = (int32_t)(seed % 5)};
	if (peer == rank)
		return;
	values_blot(recv, action->count, action->dtype, 0xee);
	values_fill(send, action->count, action->dtype, LS_SUM, rank, seed);
	if (rank < peer)
		OK(ls_send(program->group, send, action->count, action->dtype, peer, &options));
	OK(ls_recv(program->group, recv, action->count, action->dtype, peer, &options));
	values_check_from(recv, action->count, action->dtype, peer, seed);
	if (rank > peer)
		OK(ls_send(program->group, send, action->count, action->dtype, peer, &options));
}

void random_program(struct runner_rank *self)
{
	struct program program = {.common = 1 + self->turn * 1000 + (unsigned)self->size,
				  .group = runner_open(self)};
	program.local = program.common * 77 + (unsigned)self->rank;
	for (int plain = 0; plain < 2; plain++) {
		program.send[plain] = values_alloc(program.group, BYTES_MAX, plain);
		program.recv[plain] = values_alloc(program.group, BYTES_MAX, plain);
	}
	for (unsigned i = 0; i < STEPS; i++) {
		struct action action = next_action(&program, self->size);
		if (self->rank == 0) /* shown if it fails */
			printf("step %u: kind %d, dtype %d, op %d, count %llu, root %d, shift %d\n",
			       i, action.kind, (int)action.dtype, (int)action.op,
			       (unsigned long long)action.count, action.root, action.shift);
		if (action.kind < 3)
			reduce(&program, &action, self->rank, self->size, i);
		else if (action.kind < 5)
			broadcast(&program, &action, self->rank, i);
		else if (action.kind < 7)
			exchange(&program, &action, self->rank, self->size, i);
		else
			OK(ls_barrier(program.group, NULL));
	}
	for (int plain = 0; plain < 2; plain++) {
		values_free(program.group, program.send[plain], plain);
		values_free(program.group, program.recv[plain], plain);
	}
	ls_group_close(program.group);
}
