/* SPDX-License-Identifier: BSD-3-Clause
 * What can be timed: names, sizes, and how much one round moves. Includes nothing of Lockstep: see
 * bench.h. */
#include "bench/bench.h"

static const size_t window_bytes = (size_t)256 << 20;
enum { WINDOW_MIN = 4 };

const char *bench_op_name(enum bench_op op)
{
	static const char *const others[] = {
		[BENCH_PING_PONG] = "ping-pong",
		[BENCH_BANDWIDTH] = "bandwidth",
		[BENCH_MESSAGE_RATE] = "message-rate",
		[BENCH_MATCH] = "match",
		[BENCH_GROUP] = "group",
	};

	return op < BENCH_COLLECTIVE_COUNT ? coll_table[op].name : others[op];
}

int bench_op_from(const char *name)
{
	for (int op = 0; op < BENCH_OP_COUNT; op++)
		if (coll_is_name(name, bench_op_name((enum bench_op)op)))
			return op;
	return -1;
}

const size_t *bench_sizes(enum bench_op op, int *count)
{
	static const size_t none[] = {0}, small[] = {BENCH_SMALL_BYTES};
	static const size_t outstanding[] = {BENCH_SMALL_BYTES, 10 * BENCH_SMALL_BYTES,
					     100 * BENCH_SMALL_BYTES, 1000 * BENCH_SMALL_BYTES};

	*count = op == BENCH_MATCH ? 4 : 1;
	if (op == BENCH_BARRIER || op == BENCH_GROUP)
		return none;
	return op == BENCH_MESSAGE_RATE ? small : op == BENCH_MATCH ? outstanding : NULL;
}

bool bench_needs_two(enum bench_op op)
{
	return op >= BENCH_COLLECTIVE_COUNT && op != BENCH_GROUP;
}

static bool has_parts(enum bench_op op)
{
	return bench_coll(op)->input == COLL_PARTS || bench_coll(op)->output == COLL_PARTS;
}

/* As in osu_bw and ucx_perftest, all messages of a window lie in one buffer. So the size of a
 * message decides in which cache it is, and not how many are under way. */
static int window_of(size_t bytes)
{
	size_t fit = bytes > 0 ? window_bytes / bytes : BENCH_WINDOW;

	return fit < WINDOW_MIN ? WINDOW_MIN : fit < BENCH_WINDOW ? (int)fit : BENCH_WINDOW;
}

static int outstanding_of(size_t bytes)
{
	size_t count = bytes / BENCH_SMALL_BYTES;

	return count < 1 ? 1 : count < BENCH_OUTSTANDING_MAX ? (int)count : BENCH_OUTSTANDING_MAX;
}

int bench_round_messages(enum bench_op op, size_t bytes)
{
	switch (op) {
	case BENCH_PING_PONG:
		return 2;
	case BENCH_BANDWIDTH:
	case BENCH_MESSAGE_RATE:
		return window_of(bytes);
	case BENCH_MATCH:
		return outstanding_of(bytes);
	default:
		return 1;
	}
}

size_t bench_count(enum bench_op op, size_t bytes, int size)
{
	if (op == BENCH_BARRIER || op == BENCH_GROUP)
		return 0;
	if (op == BENCH_MATCH)
		bytes = (size_t)bench_round_messages(op, bytes) * BENCH_SMALL_BYTES;
	size_t count = bytes / sizeof(float) / (has_parts(op) ? (size_t)size : 1);
	return count > 0 ? count : 1;
}

size_t bench_elements(enum bench_op op, size_t bytes, int size)
{
	return bench_count(op, bytes, size) * (has_parts(op) ? (size_t)size : 1);
}

double bench_bus_factor(enum bench_op op, int size)
{
	double part = (double)(size - 1) / size;

	if (op == BENCH_ALLREDUCE)
		return 2 * part;
	return has_parts(op) ? part : 1;
}
