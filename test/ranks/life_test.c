/* SPDX-License-Identifier: BSD-3-Clause
 * Opening and closing, memory, wrong arguments, forked children. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "caught.h"
#include "operation.h"
#include "process.h"
#include "tests.h"
#include "values.h"

static void reduce_something(const struct runner_rank *self, ls_group *group, unsigned seed)
{
	int32_t values[2000];
	values_fill(values, 2000, LS_INT32, LS_SUM, self->rank, seed);
	OK(ls_allreduce(group, values, values, 2000, LS_INT32, LS_SUM, NULL));
	values_check_reduced(values, 2000, LS_INT32, LS_SUM, self->size, seed);
}

/* ---- opening and closing ---- */

void open_and_close(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	ls_group_close(group);
}

/* Neither descriptors nor mappings nor threads are left, and nothing has a name in /dev/shm. */
void open_and_close_leaves_nothing(struct runner_rank *self)
{
	int descriptors = 0, mappings = 0;
	for (int i = 0; i < 50; i++) {
		ls_group *group = runner_open(self);
		void *block;
		OK(ls_alloc(group, 100000, &block));
		reduce_something(self, group, (unsigned)i);
		CHECK(process_named_memory() == 0);
		ls_group_close(group); /* with the block, which it frees */
		runner_meet(self);
		process_await_threads(self, 1);
		if (i == 10) { /* by now libraries have what they keep */
			descriptors = process_entries("/proc/self/fd");
			mappings = process_lines("/proc/self/maps");
		}
	}
	CHECK(process_entries("/proc/self/fd") == descriptors);
#ifndef __SANITIZE_ADDRESS__ /* which keeps large blocks mapped for a while after free */
	/* malloc has two mappings for each of its arenas, and makes some more when threads wait for
	 * one. What a world leaves behind would be there 39 times. */
	CHECK_THAT(process_lines("/proc/self/maps") <= mappings + 10, "%d mappings became %d",
		   mappings, process_lines("/proc/self/maps"));
#else
	(void)mappings;
#endif
}

/* What a program opens after it has closed all descriptors gets the numbers of this library's. */
void closed_descriptors_harm_no_file(struct runner_rank *self)
{
	enum { FILES = 64, LONGER_THAN_A_LOOK_MS = 600 };
	struct ls_call_options soon = {.size = sizeof soon, .timeout_ms = LONGER_THAN_A_LOOK_MS};
	ls_group *group = runner_open(self), *other;
	int files[FILES], next = (self->rank + 1) % self->size;
	int32_t word;
	void *block;
	struct stat stat;
	runner_ready(self, group);
	CHECK(syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0) == 0);
	for (int i = 0; i < FILES; i++) {
		files[i] = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		CHECK(files[i] > STDERR_FILENO);
	}
	CHECK(ls_group_split(group, 0, 0, &other) != LS_OK);
	CHECK(ls_alloc(group, 1 << 20, &block) != LS_OK);
	GIVES(LS_TIMED_OUT, ls_recv(group, &word, 1, LS_INT32, next, &soon));
	ls_group_close(group);
	for (int i = 0; i < FILES; i++)
		CHECK(fstat(files[i], &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_size == 0);
}

/* ---- memory ---- */

void alloc_and_free(struct runner_rank *self)
{
	enum { BLOCKS = 200 };
	ls_group *group = runner_open(self);
	unsigned char *blocks[BLOCKS];
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < BLOCKS; i++) {
			size_t bytes = (size_t)i * (size_t)i * 17;
			void *block;
			OK(ls_alloc(group, bytes, &block));
			CHECK((uintptr_t)block % 64 == 0);
			blocks[i] = block;
			memset(blocks[i], i, bytes);
		}
		for (int i = 0; i < BLOCKS; i++) {
			size_t bytes = (size_t)i * (size_t)i * 17;
			for (size_t j = 0; j < bytes; j += 97)
				CHECK(blocks[i][j] == i);
			OK(ls_free(group, blocks[i]));
		}
	}
	OK(ls_free(group, NULL));
	GIVES(LS_BAD_ARGUMENT, ls_free(group, &blocks));
	GIVES(LS_BAD_ARGUMENT, ls_free(group, blocks[5]));
	void *block = &blocks;
	GIVES(LS_OUT_OF_MEMORY, ls_alloc(group, SIZE_MAX / 2, &block));
	CHECK(!block);
	GIVES(LS_BAD_ARGUMENT, ls_alloc(group, 10, NULL));
	GIVES(LS_BAD_ARGUMENT, ls_alloc(NULL, 10, &block));
	reduce_something(self, group, 0);
	ls_group_close(group);
}

void wrong_arguments_are_told(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct caught caught;
	int32_t a[8] = {0}, b[8];
	void *block;
	OK(ls_alloc(group, 10, &block));
	OK(ls_free(group, block));
	caught_begin(&caught);
	GIVES(LS_BAD_ARGUMENT, ls_free(group, &block));
	GIVES(LS_BAD_ARGUMENT, ls_free(group, block));
	GIVES(LS_BAD_ARGUMENT, ls_send(group, a, UINT64_MAX, LS_INT32, 0, NULL));
	GIVES(LS_BAD_ARGUMENT, ls_allreduce(group, a, b, UINT64_C(1) << 62, LS_INT32, LS_SUM, NULL));
	const char *text = caught_end(&caught);
	SAYS(text, "is not the start of a block of this group, called from life_test.c:");
	SAYS(text, "was freed already, called from life_test.c:");
	/* as the caller gave them */
	SAYS(text, "ls_send: count is 18446744073709551615, but must be below 2^63 bytes in all");
	SAYS(text, "ls_allreduce: count is 4611686018427387904, but must be below 2^63 bytes");
	ls_group_close(group);
}

/* ---- wrong arguments ---- */

static void wrong_messages(const struct runner_rank *self, ls_group *group)
{
	int32_t a[8] = {0};
	ls_dtype no_dtype = (ls_dtype)15;
	ls_status bad = LS_BAD_ARGUMENT;
	GIVES(bad, ls_send(NULL, a, 8, LS_INT32, 0, NULL));
	GIVES(bad, ls_send(group, NULL, 8, LS_INT32, 0, NULL));
	GIVES(bad, ls_send(group, a, 8, no_dtype, 0, NULL));
	GIVES(bad, ls_send(group, a, UINT64_MAX, LS_INT32, 0, NULL));
	GIVES(bad, ls_send(group, a, 8, LS_INT32, -1, NULL));
	GIVES(bad, ls_send(group, a, 8, LS_INT32, self->size, NULL));
	GIVES(bad, ls_recv(NULL, a, 8, LS_INT32, 0, NULL));
	GIVES(bad, ls_recv(group, NULL, 8, LS_INT32, 0, NULL));
	GIVES(bad, ls_recv(group, a, 8, no_dtype, 0, NULL));
	GIVES(bad, ls_recv(group, a, UINT64_MAX, LS_INT32, 0, NULL));
	GIVES(bad, ls_recv(group, a, 8, LS_INT32, -2, NULL)); /* -1 is any source */
	GIVES(bad, ls_recv(group, a, 8, LS_INT32, self->size, NULL));
	ls_request *op = (ls_request *)a;
	GIVES(bad, ls_isend(group, a, 8, LS_INT32, 0, NULL, NULL));
	GIVES(bad, ls_isend(group, a, 8, LS_INT32, -1, NULL, &op));
	CHECK(!op);
	GIVES(bad, ls_irecv(group, NULL, 8, LS_INT32, 0, NULL, &op));
	struct ls_message message = {.size = 0};
	GIVES(bad, ls_probe(group, 0, NULL, NULL));
	GIVES(bad, ls_iprobe(group, 0, NULL, &message));
	GIVES(bad, ls_cancel(NULL));
	GIVES(bad, ls_send_block(group, a, 1, LS_INT32, 0, NULL));
	GIVES(bad, ls_recv_block(group, NULL, 1, LS_INT32, 0, NULL));
}

static void wrong_options(ls_group *group)
{
	int32_t a[8] = {0};
	struct ls_call_options any = {.size = sizeof any, .tag = LS_ANY_TAG};
	GIVES(LS_BAD_ARGUMENT, ls_send(group, a, 8, LS_INT32, 0, &any));
	struct ls_call_options wrong[] = {
		{.size = 0},
		{.size = 1u << 30},
		{.size = sizeof *wrong, .tag = -2},
		{.size = sizeof *wrong, .stream = a},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		const struct ls_call_options *options = &wrong[i];
		GIVES(LS_BAD_ARGUMENT, ls_send(group, a, 8, LS_INT32, 0, options));
		GIVES(LS_BAD_ARGUMENT, ls_recv(group, a, 8, LS_INT32, 0, options));
	}
	struct ls_failure failure = {.size = 0};
	GIVES(LS_BAD_ARGUMENT, ls_group_failure(group, &failure));
	GIVES(LS_BAD_ARGUMENT, ls_group_failure(group, NULL));
	failure.size = sizeof failure;
	GIVES(LS_BAD_ARGUMENT, ls_group_failure(NULL, &failure));
	GIVES(LS_BAD_ARGUMENT, ls_group_abort(NULL, "nothing"));
	CHECK(ls_group_rank(NULL) == -1 && ls_group_size(NULL) == -1);
	CHECK(ls_dtype_bytes((ls_dtype)15) == 0 && ls_dtype_bytes((ls_dtype)-1) == 0);
	ls_group_close(NULL);
}

static void wrong_places(void)
{
	ls_group *group = (ls_group *)&group;
	static const struct ls_group_options wrong[] = {
		{.size = sizeof *wrong, .rendezvous = "unix:x", .rank = 2, .world_size = 2},
		{.size = sizeof *wrong, .rendezvous = "unix:x", .rank = -1, .world_size = 2},
		{.size = sizeof *wrong, .rendezvous = "unix:x", .rank = 0, .world_size = 0},
		{.size = sizeof *wrong, .rendezvous = "unix:x", .rank = 0, .world_size = 513},
		{.size = sizeof *wrong, .rendezvous = "nowhere", .rank = 0, .world_size = 1},
		{.size = sizeof *wrong, .rendezvous = "unix:", .rank = 0, .world_size = 1},
		{.size = sizeof *wrong, .rendezvous = "tcp:127.0.0.1", .rank = 0, .world_size = 1},
		{.size = sizeof *wrong,
		 .rendezvous = "tcp:127.0.0.1:99999",
		 .rank = 0,
		 .world_size = 1},
		{.size = 0, .rendezvous = "unix:x", .rank = 0, .world_size = 1},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		ls_status status = ls_group_open(&wrong[i], &group);
		CHECK_THAT(status == LS_BAD_ARGUMENT, "place %zu: %s", i, ls_status_name(status));
		CHECK(!group);
	}
	GIVES(LS_BAD_ARGUMENT, ls_group_open(&wrong[0], NULL));
}

/* Each is refused, alone and at once, and the group goes on as if nothing had been called. */
void wrong_arguments(struct runner_rank *self)
{
	wrong_places();
	ls_group *group = runner_open(self);
	wrong_messages(self, group);
	wrong_options(group);
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK(failure.status == LS_OK);
	reduce_something(self, group, 0);
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}

/* An older program's options are shorter: what they lack has its default. */
void shorter_options(struct runner_rank *self)
{
	struct {
		uint32_t size, timeout_ms;
	} old = {.size = sizeof old, .timeout_ms = RUNNER_TIMEOUT_MS};
	ls_group *group = runner_open(self);
	OK(ls_barrier(group, (const struct ls_call_options *)&old));
	ls_group_close(group);
}

/* ---- forked children ---- */

static void forked(ls_group *group, void *block, ls_request *op)
{
	int32_t value = 0;
	void *out = &value;
	struct ls_failure failure = {.size = sizeof failure};
	for (int kind = 0; kind < OPERATION_EXCHANGE; kind++) {
		struct operation_call call = {.kind = (enum operation_kind)kind, .group = group};
		GIVES(LS_FORKED, operation_issue(&call));
	}
	GIVES(LS_FORKED, ls_send(group, &value, 1, LS_INT32, 0, NULL));
	GIVES(LS_FORKED, ls_recv(group, &value, 1, LS_INT32, 0, NULL));
	ls_group *more = group;
	GIVES(LS_FORKED, ls_group_split(group, 0, 0, &more));
	CHECK(!more);
	GIVES(LS_FORKED, ls_group_from_ranks(group, (const int[]){0}, 1, &more));
	CHECK(!ls_group_get(group, (const int[]){0}, 1));
	GIVES(LS_FORKED, ls_group_abort(group, "a child may not"));
	GIVES(LS_FORKED, ls_group_failure(group, &failure));
	GIVES(LS_FORKED, ls_alloc(group, 100, &out));
	CHECK(!out);
	int index = 3;
	GIVES(LS_FORKED, ls_test(op));
	GIVES(LS_FORKED, ls_wait(op, 0));
	GIVES(LS_FORKED, ls_wait_any(&op, 1, 0, &index));
	CHECK(index == -1);
	ls_join *join;
	GIVES(LS_FORKED, ls_join_open(group, NULL, &join));
	ls_request_free(op);
	OK(ls_free(group, block));
	ls_group_close(group);
}

/* In the child every call fails; the parent never notices. */
void a_forked_child_is_told(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	void *block;
	OK(ls_alloc(group, 5000, &block));
	memset(block, 7, 5000);
	ls_request *op;
	struct ls_call_options options = {.size = sizeof options, .request = &op};
	OK(ls_barrier(group, &options));
	OK(ls_wait(op, 0));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		forked(group, block, op);
		_exit(0);
	}
	reduce_something(self, group, 1);
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	reduce_something(self, group, 2);
	ls_request_free(op);
	OK(ls_free(group, block));
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}

/* From these follow the plans, so with different ones ranks would wait for each other. */
void different_settings_are_refused(struct runner_rank *self)
{
	struct ls_group_options options = {.size = sizeof options,
					   .rank = self->rank,
					   .world_size = self->size,
					   .rendezvous = self->rendezvous};
	ls_group *group;
	if (self->rank == 1)
		CHECK(setenv("LOCKSTEP_ALGORITHM", "ring", 1) == 0);
	GIVES(LS_INCONSISTENT, ls_group_open(&options, &group));
	CHECK(!group);
	if (self->rank == 1)
		CHECK(unsetenv("LOCKSTEP_ALGORITHM") == 0 &&
		      setenv("LOCKSTEP_BLOCKING", "1", 1) == 0);
	GIVES(LS_INCONSISTENT, ls_group_open(&options, &group));
	CHECK(!group);
}

/* ---- several threads close one group ---- */

enum { CLOSERS = 4, CLOSES = 30 };

struct closer {
	pthread_t thread;
	pthread_barrier_t *start;
	ls_group *group;
};

static void *close_at_once(void *argument)
{
	const struct closer *closer = argument;
	pthread_barrier_wait(closer->start);
	ls_group_close(closer->group);
	return NULL;
}

static void close_by_all(ls_group *group)
{
	pthread_barrier_t start;
	struct closer closers[CLOSERS];
	CHECK(pthread_barrier_init(&start, NULL, CLOSERS) == 0);
	for (int i = 0; i < CLOSERS; i++) {
		closers[i] = (struct closer){.start = &start, .group = group};
		CHECK(pthread_create(&closers[i].thread, NULL, close_at_once, &closers[i]) == 0);
	}
	for (int i = 0; i < CLOSERS; i++)
		pthread_join(closers[i].thread, NULL);
	pthread_barrier_destroy(&start);
}

/* One of them does, the others are told. */
void threads_that_close_one_group(struct runner_rank *self)
{
	ls_group *world = runner_open(self);
	struct caught caught;
	for (int i = 0; i <= CLOSES; i++) {
		ls_group *group = world;
		int told = 0;
		if (i < CLOSES)
			OK(ls_group_split(world, 0, 0, &group));
		caught_begin(&caught);
		close_by_all(group);
		caught_end(&caught);
		for (const char *at = caught.text; (at = strstr(at, "ls_group_close: group is "));
		     at++)
			told++;
		CHECK_THAT(told == CLOSERS - 1, "%d were told: %s", told, caught.text);
	}
}
