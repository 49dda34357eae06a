/* SPDX-License-Identifier: BSD-3-Clause
 * A job for kill_test.py to break: loop SEED ROUNDS. All ranks draw the same operations from SEED,
 * of all kinds, and check what they receive. With LOOP_WORKER set each rank forks a worker that
 * stays. Each rank tells the test, by single writes to descriptor LOOP_FD, when it reaches main
 * ("is PID"), is "open", is about to make its first further group ("grouping"), is at its "last"
 * operation, is "closing" and is "done"; and how its groups failed: in which call, and when. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

enum {
	SMALL = 8,               /* floats: inline in the entry, or in a message */
	MIDDLE = 16 * 1024,      /* 64 KiB */
	LARGE = 2 * 1024 * 1024, /* 8 MiB */
	LONG = 256 * 1024,       /* of a message: 1 MiB */
	CYCLE = 8,               /* values repeat after this many */
	WRONG_DATA = 5,
	WRONG_STATUS = 6,
	TOUCHED = 7,
	MARK = 0xa5,
};

static ls_group *group; /* the group of all ranks */
static int rank, size, tell_fd;
static unsigned seed;
static const char *doing = "opening";
static long long began_ns; /* the call that is in progress, or was the last one */
/* Memory of either kind, of LARGE floats each. */
static float *memory[2];

static void __attribute__((format(printf, 1, 2))) tell(const char *format, ...)
{
	char line[256];
	va_list arguments;
	va_start(arguments, format);
	int bytes = vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	if (write(tell_fd, line, (size_t)bytes) != bytes)
		_exit(99);
}

static long long now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A call that may fail. While a rank computes it cannot learn of a failure. */
#define CALL(call) (began_ns = now_ns(), (call))

/* Prints what has failed the group, with ranks of the group of all ranks. */
static void tell_failure(ls_status status, ls_group *failed, const char *where)
{
	struct ls_failure failure = {.size = sizeof failure, .rank = -1};
	long long end_ns = now_ns();
	if (failed && ls_group_failure(failed, &failure) != LS_OK)
		exit(WRONG_STATUS);
	int culprit =
		failed && failure.rank >= 0 ? ls_group_rank_in(failed, failure.rank, group) : -1;
	tell("rank %d: %s blamed %d while %s in %s from %lld to %lld\n", rank,
	     ls_status_name(status), culprit, where, doing, began_ns, end_ns);
}

/* Element i of the data that is sent with this factor in this round: small integers, so that sums
 * are exact. */
static float value(int factor, int round, uint64_t i)
{
	return (float)(factor * (round % 13 + 1 + (int)(i % CYCLE)));
}

static void fill(float *buffer, uint64_t count, int round, int factor)
{
	for (uint64_t i = 0; i < count; i++)
		buffer[i] = value(factor, round, i);
}

static void check(const float *buffer, uint64_t count, int round, int factor)
{
	float wrong = 0;
	for (uint64_t i = 0; i < count; i++)
		wrong += buffer[i] != value(factor, round, i) ? 1 : 0;
	if (wrong == 0)
		return;
	tell("rank %d: %.0f of %llu elements are wrong in %s, round %d\n", rank, (double)wrong,
	     (unsigned long long)count, doing, round);
	_exit(WRONG_DATA);
}

static unsigned draw(unsigned below)
{
	return (unsigned)rand_r(&seed) % below;
}

static uint64_t draw_count(void)
{
	static const uint64_t counts[] = {SMALL, SMALL, SMALL, 300, MIDDLE, MIDDLE, LARGE, 0};
	return counts[draw(sizeof counts / sizeof counts[0])];
}

/* Of all ranks together, so that the parts of all fit into one buffer. */
static uint64_t draw_part(void)
{
	return draw_count() / (uint64_t)size;
}

static int draw_root(void)
{
	return (int)draw((unsigned)size);
}

/* Ranks differ in which memory they use. */
static float *draw_memory(void)
{
	return memory[draw(64) >> (rank % 4) & 1];
}

static int factor_of_all(void)
{
	return size * (size + 1) / 2;
}

static ls_status sum(int round)
{
	uint64_t count = draw_count();
	float *from = draw_memory(), *to = draw_memory();
	fill(from, count, round, rank + 1);
	ls_status status = CALL(ls_allreduce(group, from, to, count, LS_FLOAT32, LS_SUM, NULL));
	if (status == LS_OK)
		check(to, count, round, factor_of_all());
	return status;
}

static ls_status sum_at_root(int round)
{
	uint64_t count = draw_count();
	int root = draw_root();
	float *from = draw_memory(), *to = draw_memory();
	fill(from, count, round, rank + 1);
	ls_status status = CALL(ls_reduce(group, from, to, count, LS_FLOAT32, LS_SUM, root, NULL));
	if (status == LS_OK && rank == root)
		check(to, count, round, factor_of_all());
	return status;
}

static ls_status spread(int round)
{
	uint64_t count = draw_count();
	int root = draw_root();
	float *buffer = draw_memory();
	if (rank == root)
		fill(buffer, count, round, root + 1);
	ls_status status = CALL(ls_broadcast(group, buffer, buffer, count, LS_FLOAT32, root, NULL));
	if (status == LS_OK)
		check(buffer, count, round, root + 1);
	return status;
}

static void check_parts(const float *parts, uint64_t count, int round)
{
	for (int r = 0; r < size; r++)
		check(parts + (uint64_t)r * count, count, round, r + 1);
}

static ls_status collect(int round)
{
	uint64_t count = draw_part();
	bool at_root = draw(2);
	int root = draw_root();
	float *parts = draw_memory(), *mine = parts + (uint64_t)rank * count;
	fill(mine, count, round, rank + 1);
	doing = at_root ? "gather" : "all-gather";
	ls_status status =
		at_root ? CALL(ls_gather(group, mine, parts, count, LS_FLOAT32, root, NULL))
			: CALL(ls_allgather(group, mine, parts, count, LS_FLOAT32, NULL));
	if (status == LS_OK && (!at_root || rank == root))
		check_parts(parts, count, round);
	return status;
}

static ls_status hand_out(int round)
{
	uint64_t count = draw_part();
	int root = draw_root();
	bool here = rank == root;
	float *parts = memory[0], *mine = memory[1];
	for (int r = 0; here && r < size; r++)
		fill(parts + (uint64_t)r * count, count, round, r + 1);
	ls_status status = CALL(ls_scatter(group, parts, mine, count, LS_FLOAT32, root, NULL));
	if (status == LS_OK)
		check(mine, count, round, rank + 1);
	return status;
}

static ls_status sum_parts(int round)
{
	uint64_t count = draw_part();
	float *parts = memory[0], *mine = memory[1];
	for (int r = 0; r < size; r++)
		fill(parts + (uint64_t)r * count, count, round, rank + r + 1);
	ls_status status =
		CALL(ls_reduce_scatter(group, parts, mine, count, LS_FLOAT32, LS_SUM, NULL));
	if (status == LS_OK)
		check(mine, count, round, factor_of_all() + size * rank);
	return status;
}

static ls_status swap_parts(int round)
{
	uint64_t count = draw_part();
	float *from = memory[0], *to = memory[1];
	for (int r = 0; r < size; r++)
		fill(from + (uint64_t)r * count, count, round, rank * size + r + 1);
	ls_status status = CALL(ls_alltoall(group, from, to, count, LS_FLOAT32, NULL));
	for (int r = 0; r < size && status == LS_OK; r++)
		check(to + (uint64_t)r * count, count, round, r * size + rank + 1);
	return status;
}

static ls_status meet(int round)
{
	(void)round;
	return CALL(ls_barrier(group, NULL));
}

/* Two collectives and a message around a ring, all in progress at once. */
static ls_status beside(int round)
{
	enum { COUNT = 4 };
	ls_request *ops[COUNT] = {NULL};
	float *at = memory[0];
	struct ls_call_options tag = {.size = sizeof tag, .tag = round};
	int next = (rank + 1) % size, before = (rank + size - 1) % size;
	for (int i = 0; i < COUNT; i++)
		fill(at + (uint64_t)i * LONG, LONG, round, rank + 1);
	struct ls_call_options first = {.size = sizeof first, .request = &ops[0]};
	struct ls_call_options second = {.size = sizeof second, .request = &ops[1]};
	ls_status status = CALL(ls_allreduce(group, at, at, LONG, LS_FLOAT32, LS_SUM, &first));
	if (status == LS_OK)
		status = CALL(ls_allreduce(group, at + LONG, at + LONG, LONG, LS_FLOAT32, LS_SUM,
					   &second));
	if (status == LS_OK)
		status = CALL(
			ls_irecv(group, at + 2 * LONG, LONG, LS_FLOAT32, before, &tag, &ops[2]));
	if (status == LS_OK)
		status = CALL(ls_isend(group, at + 3 * LONG, LONG, LS_FLOAT32, next, &tag, &ops[3]));
	for (int i = 0; i < COUNT; i++) {
		ls_status end = ops[i] ? CALL(ls_wait(ops[i], 0)) : status;
		status = status == LS_OK ? end : status;
		ls_request_free(ops[i]);
	}
	for (int i = 0; i < 3 && status == LS_OK; i++)
		check(at + (uint64_t)i * LONG, LONG, round, i < 2 ? factor_of_all() : before + 1);
	return status;
}

/* Makes a group of some ranks, sums in it, and closes it. */
static ls_status divide(int round)
{
	static bool told;
	unsigned colors = draw(64);
	int color = (int)(colors >> rank & 1), factor = 0, count = 0, ranks[64];
	float *buffer = draw_memory();
	bool by_list = draw(2);
	ls_group *part = NULL;
	for (int r = 0; r < size; r++) {
		bool member = (int)(colors >> r & 1) == (by_list ? 1 : color);
		factor += member ? r + 1 : 0;
		if (member)
			ranks[count++] = r;
	}
	if (by_list && count == 0)
		return LS_OK;
	if (!told)
		tell("rank %d grouping\n", rank);
	told = true;
	ls_status status = by_list ? CALL(ls_group_from_ranks(group, ranks, count, &part))
				   : CALL(ls_group_split(group, color, 0, &part));
	if (status == LS_NOT_MEMBER)
		return LS_OK;
	if (status != LS_OK)
		return status;
	doing = "a further group";
	fill(buffer, MIDDLE, round, rank + 1);
	status = CALL(ls_allreduce(part, buffer, buffer, MIDDLE, LS_FLOAT32, LS_SUM, NULL));
	/* The world group stays open: all ranks continue in it, until one of them needs the dead
	 * rank. */
	if (status == LS_OK)
		check(buffer, MIDDLE, round, factor);
	else
		tell_failure(status, part, "looping");
	ls_group_close(part);
	return LS_OK;
}

/* Two ranks send to and fro; the others continue. */
static ls_status exchange(int round)
{
	uint64_t count = draw(2) ? LONG : SMALL;
	if (size == 1)
		return LS_OK;
	int first = (int)draw((unsigned)size);
	int second = (first + 1 + (int)draw((unsigned)size - 1)) % size;
	float *buffer = draw_memory();
	struct ls_call_options tag = {.size = sizeof tag, .tag = round};
	if (rank != first && rank != second)
		return LS_OK;
	int peer = rank == first ? second : first;
	ls_status status = LS_OK;
	for (int turn = 0; turn < 2 && status == LS_OK; turn++) {
		if ((turn == 0) == (rank == first)) {
			fill(buffer, count, round, rank + 1);
			status = CALL(ls_send(group, buffer, count, LS_FLOAT32, peer, &tag));
		} else {
			status = CALL(ls_recv(group, buffer, count, LS_FLOAT32, peer, &tag));
			if (status == LS_OK)
				check(buffer, count, round, peer + 1);
		}
	}
	return status;
}

static const struct {
	const char *name;
	ls_status (*run)(int round);
} kinds[] = {
	{"all-reduce", sum},
	{"reduce", sum_at_root},
	{"broadcast", spread},
	{"gather", collect},
	{"scatter", hand_out},
	{"reduce-scatter", sum_parts},
	{"all-to-all", swap_parts},
	{"barrier", meet},
	{"messages", exchange},
	{"several at once", beside},
	{"the making of a group", divide},
};

static ls_status loop(int rounds)
{
	ls_status status = LS_OK;
	for (int round = 0; round < rounds && status == LS_OK; round++) {
		unsigned kind = draw(sizeof kinds / sizeof kinds[0]);
		doing = kinds[kind].name;
		status = kinds[kind].run(round);
	}
	if (status != LS_OK)
		return status;
	doing = "the last barrier";
	tell("rank %d last\n", rank);
	return CALL(ls_barrier(group, NULL));
}

/* The group keeps the same status, and no peer touches this rank's buffers any more. */
static void check_closed(ls_status status)
{
	for (int kind = 0; kind < 2; kind++)
		memset(memory[kind], MARK, LARGE * sizeof(float));
	if (CALL(ls_barrier(group, NULL)) != status)
		_exit(WRONG_STATUS);
	for (int kind = 0; kind < 2; kind++)
		for (size_t i = 0; i < LARGE * sizeof(float); i++)
			if (((unsigned char *)memory[kind])[i] != MARK)
				_exit(TOUCHED);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	seed = (unsigned)strtoul(argv[1], NULL, 10);
	rank = (int)strtol(getenv("RANK"), NULL, 10);
	tell_fd = (int)strtol(getenv("LOOP_FD"), NULL, 10);
	tell("rank %d is %d\n", rank, getpid());
	if (getenv("LOOP_WORKER") && fork() == 0)
		for (;;)
			pause();
	ls_status status = CALL(ls_group_open(NULL, &group));
	if (status != LS_OK) {
		tell_failure(status, group, "opening");
		return 1;
	}
	size = ls_group_size(group);
	tell("rank %d open\n", rank);
	memory[0] = malloc(LARGE * sizeof(float));
	void *block;
	if (!memory[0] || ls_alloc(group, LARGE * sizeof(float), &block) != LS_OK)
		return 3;
	memory[1] = block;
	status = loop((int)strtol(argv[2], NULL, 10));
	if (status != LS_OK) {
		tell_failure(status, group, "looping");
		check_closed(status);
	}
	tell("rank %d closing\n", rank);
	ls_group_close(group);
	free(memory[0]);
	tell("rank %d done\n", rank);
	return status == LS_OK ? 0 : 1;
}
