/* SPDX-License-Identifier: BSD-3-Clause
 * LOCKSTEP_CHECK=1 with ranks: calls that touch what is under way are refused, with both call
 * sites; right programs are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>

#include "job_fixture.h"

enum { COUNT = 1000, BYTES = COUNT * sizeof(int32_t), LONG = 1 << 20 };

/* Ranks 1 and 2 take part in what rank 0 has begun only when it says so. */
static _Atomic int allowed;

static void allow(int step)
{
	atomic_store(&allowed, step);
}

static void await_step(int step)
{
	while (atomic_load(&allowed) < step)
		sched_yield();
}

/* Whether the thread's last error has all these texts, up to NULL, and two call sites. */
static bool has_said(const char *const *texts)
{
	char said[2048] = "";
	if (ls_last_error(said, sizeof said) <= 0)
		return false;
	const char *site = strstr(said, "called from ");
	bool all = site && strstr(site + 1, "called from ");
	for (; *texts; texts++)
		all = all && strstr(said, *texts);
	if (!all)
		fprintf(stderr, "it said: %s\n", said);
	return all;
}
/* Whether it names this line, and the one behind it, as the call sites: the later call first. */
static bool has_said_lines(int first)
{
	char said[2048] = "", earlier[32], later[32];
	snprintf(earlier, sizeof earlier, "races_test.c:%d,", first);
	snprintf(later, sizeof later, "races_test.c:%d,", first + 1);
	if (ls_last_error(said, sizeof said) <= 0)
		return false;
	const char *at = strstr(said, later);
	return at && strstr(at, earlier);
}
#define SAID(...) has_said((const char *const[]){__VA_ARGS__, NULL})

static ls_status sum(struct rank *rank, const void *send, void *recv, int stream, ls_op **op)
{
	struct ls_op_options options = {.size = sizeof options, .op = op};
	if (stream >= 0)
		options.stream = rank->streams[stream];
	return ls_allreduce(rank->group, send, recv, COUNT, LS_INT32, LS_SUM, &options);
}

static void end(ls_op *op)
{
	MUST(ls_wait(op, 0) == LS_OK);
	ls_op_free(op);
}

/* What the other ranks do: so many all-reduces, once rank 0 has tried all that is wrong. */
static void take_part(int count, struct rank *rank)
{
	int32_t *mine = calloc(COUNT, sizeof *mine);
	MUST(mine);
	await_step(1);
	for (int i = 0; i < count; i++)
		MUST(sum(rank, mine, mine, -1, NULL) == LS_OK);
	free(mine);
}

/* ---- buffers of the host ---- */

static void host_buffers(struct rank *rank)
{
	static int32_t a[COUNT], b[COUNT], c[COUNT];
	ls_op *op, *none;
	if (rank->rank > 0) {
		take_part(3, rank);
		return;
	}
	MUST(sum(rank, a, b, -1, &op) == LS_OK);
	/* The result, and what is given, belong to it. */
	MUST(ls_send(rank->group, b + 10, 5, LS_INT32, 1, NULL) == LS_BAD_ARGUMENT);
	MUST(SAID("send", "reads the 20 bytes", "all-reduce #1", "may still write", "races_test.c:"));
	MUST(ls_irecv(rank->group, a + COUNT - 1, 9, LS_INT32, 1, NULL, &none) == LS_BAD_ARGUMENT &&
	     !none);
	MUST(SAID("receive", "writes the 4 bytes", "may still read", "Wait for it first"));
	/* Reading what is only read is right, and so is all that is elsewhere. */
	MUST(ls_isend(rank->group, a, 5, LS_INT32, 0, NULL, &none) == LS_OK);
	MUST(ls_recv(rank->group, c, 5, LS_INT32, 0, NULL) == LS_OK);
	end(none);
	/* Collectives of a group run one after the other. */
	allow(1);
	MUST(sum(rank, b, b, -1, NULL) == LS_OK);
	end(op);
	/* A call that a signal may interrupt, and that was not interrupted, is over. */
	struct ls_op_options resumable = {.size = sizeof resumable, .op = &op, .resumable = 1};
	MUST(ls_allreduce(rank->group, b, b, COUNT, LS_INT32, LS_SUM, &resumable) == LS_OK && !op);
	MUST(ls_isend(rank->group, b, 5, LS_INT32, 0, NULL, &none) == LS_OK);
	MUST(ls_recv(rank->group, a, 5, LS_INT32, 0, NULL) == LS_OK);
	end(none);
}

/* A long send that is not received yet is reused by a receive; later, after its wait, it may. */
static void messages(struct rank *rank)
{
	static int32_t a[LONG], b[LONG];
	ls_op *op, *none;
	int32_t value = 1, got = 0;
	if (rank->rank == 1) {
		await_step(1);
		MUST(ls_recv(rank->group, b, LONG, LS_INT32, 0, NULL) == LS_OK);
		MUST(ls_send(rank->group, &value, 1, LS_INT32, 0, NULL) == LS_OK);
	}
	if (rank->rank > 0)
		return;
	MUST(ls_isend(rank->group, a, LONG, LS_INT32, 1, NULL, &op) == LS_OK);
	MUST(ls_irecv(rank->group, a + LONG / 2, 1, LS_INT32, 1, NULL, &none) == LS_BAD_ARGUMENT);
	MUST(SAID("receive", "writes the 4 bytes", "send #1", "may still read"));
	/* Also by a label, and in a batch; and the other parts of that go on. */
	struct ls_op_options named = {.size = sizeof named, .label = "train.py:12 (step)"};
	MUST(ls_recv(rank->group, a, 1, LS_INT32, 1, &named) == LS_BAD_ARGUMENT);
	MUST(SAID("called from train.py:12 (step)"));
	MUST(ls_batch_begin(rank->group) == LS_OK);
	MUST(ls_send(rank->group, &value, 1, LS_INT32, 0, NULL) == LS_OK);
	MUST(ls_recv(rank->group, a, 1, LS_INT32, 0, NULL) == LS_BAD_ARGUMENT);
	MUST(ls_recv(rank->group, &got, 1, LS_INT32, 0, NULL) == LS_OK);
	MUST(ls_batch_end(rank->group, NULL) == LS_OK && got == 1);
	allow(1);
	end(op);
	MUST(ls_recv(rank->group, a + LONG / 2, 1, LS_INT32, 1, NULL) == LS_OK);
	MUST(a[LONG / 2] == 1);
}

/* A block of the arena that an operation still uses is not freed. */
static void blocks_of_the_host(struct rank *rank)
{
	static int32_t result[COUNT];
	ls_op *op;
	void *block;
	if (rank->rank > 0) {
		take_part(1, rank);
		return;
	}
	MUST(ls_alloc(rank->group, BYTES, &block) == LS_OK);
	memset(block, 0, BYTES);
	MUST(sum(rank, block, result, -1, &op) == LS_OK);
	MUST(ls_free(rank->group, block) == LS_BAD_ARGUMENT);
	MUST(SAID("ls_free", "frees the block", "all-reduce #1", "may still read 4000 bytes"));
	allow(1);
	end(op);
	MUST(ls_free(rank->group, block) == LS_OK);
}

/* ---- streams ---- */

/* An operation on one stream, and then another one on a second stream without an order. */
static void two_operations(struct rank *rank)
{
	ls_op *op, *second;
	if (rank->rank > 0) {
		take_part(3, rank);
		return;
	}
	char *a = device_block(rank, 2 * BYTES), *b = a + BYTES;
	ls_group *group = rank->group;
	struct ls_op_options on_first = on(rank, 0), on_second = on(rank, 1);
	on_first.op = &op;
	on_second.op = &second;
	/* clang-format off: a line each */
	int line = __LINE__ + 1;
	ls_status status = ls_allreduce(group, a, b, COUNT, LS_INT32, LS_SUM, &on_first);
	ls_status refused = ls_allreduce(group, b, a, COUNT, LS_INT32, LS_SUM, &on_second);
	/* clang-format on */
	MUST(status == LS_OK && refused == LS_BAD_ARGUMENT && op && !second);
	MUST(has_said_lines(line));
	/* The host must not touch it, either. */
	MUST(ls_send(rank->group, b, COUNT, LS_INT32, 1, NULL) == LS_BAD_ARGUMENT);
	MUST(SAID("send, called", "all-reduce #1 on stream", "synchronise of its stream"));
	/* The right way. */
	MUST(ls_op_follow(op, rank->streams[1]) == LS_OK);
	MUST(sum(rank, b, b, 1, &second) == LS_OK);
	/* An event is an order, too. */
	struct sim_event *event;
	MUST(sim_event_open(rank->sim, &event) == SIM_OK);
	MUST(sim_record(event, rank->streams[1]) == SIM_OK);
	on_first.op = NULL;
	MUST(ls_send(rank->group, b, 1, LS_INT32, 1, &on_first) == LS_BAD_ARGUMENT);
	MUST(sim_follow(rank->streams[0], event) == SIM_OK);
	MUST(sum(rank, b, a, 0, NULL) == LS_OK);
	allow(1);
	end(op);
	end(second);
	MUST(sim_stream_sync(rank->streams[0]) == SIM_OK);
	/* The host has waited for the stream, of which Lockstep knows nothing. */
	MUST(ls_device_free(rank->group, a) == LS_OK);
	MUST(sim_event_close(event) == SIM_OK);
}

/* Three streams: what follows the second one follows the first one as well. */
static void three_streams(struct rank *rank)
{
	struct sim_stream *third;
	struct sim_event *event;
	ls_op *op;
	if (rank->rank > 0) {
		take_part(3, rank);
		return;
	}
	MUST(sim_stream_open(rank->sim, 0, &third) == SIM_OK);
	MUST(sim_event_open(rank->sim, &event) == SIM_OK);
	char *a = device_block(rank, BYTES), *b = device_block(rank, BYTES);
	struct ls_op_options on_third = {.size = sizeof on_third, .stream = third};
	MUST(sum(rank, a, a, 0, &op) == LS_OK);
	MUST(ls_op_follow(op, rank->streams[1]) == LS_OK);
	MUST(ls_allreduce(rank->group, a, b, COUNT, LS_INT32, LS_SUM, &on_third) == LS_BAD_ARGUMENT);
	MUST(SAID("reads the 4000 bytes", "all-reduce #1 on stream", "may still write"));
	MUST(sum(rank, b, b, 1, NULL) == LS_OK);
	MUST(sim_record(event, rank->streams[1]) == SIM_OK);
	MUST(sim_follow(third, event) == SIM_OK);
	MUST(ls_allreduce(rank->group, a, b, COUNT, LS_INT32, LS_SUM, &on_third) == LS_OK);
	/* Freed for the first stream, which waits for none of the others. */
	MUST(ls_device_free(rank->group, b) == LS_BAD_ARGUMENT);
	MUST(SAID("ls_device_free", "frees the block", "all-reduce #", "ls_device_record"));
	MUST(ls_device_record(rank->group, b, rank->streams[1]) == LS_OK);
	MUST(ls_device_free(rank->group, b) == LS_BAD_ARGUMENT); /* and the third one */
	MUST(ls_device_record(rank->group, b, third) == LS_OK);
	MUST(ls_device_free(rank->group, b) == LS_OK);
	allow(1);
	end(op);
	MUST(sim_stream_sync(third) == SIM_OK && ls_device_free(rank->group, a) == LS_OK);
	MUST(ls_device_forget(rank->group, third) == LS_OK);
	MUST(sim_stream_close(third) == SIM_OK && sim_event_close(event) == SIM_OK);
}

/* Freed memory: an operation on it is refused; but what the next call gets is used at once. */
static void after_free(struct rank *rank)
{
	ls_op *op, *none;
	if (rank->rank > 0) {
		take_part(2, rank);
		return;
	}
	char *a = device_block(rank, BYTES);
	MUST(sum(rank, a, a, 0, &op) == LS_OK);
	MUST(ls_device_free(rank->group, a) == LS_OK); /* in the order of the stream */
	MUST(sum(rank, a, a, 0, &none) == LS_BAD_ARGUMENT && !none);
	MUST(SAID("all-reduce on stream", "ls_device_free, called from", "has freed"));
	char *again = device_block(rank, BYTES);
	MUST(again == a);
	MUST(sum(rank, again, again, 0, NULL) == LS_OK);
	MUST(ls_device_free(rank->group, again) == LS_OK);
	allow(1);
	end(op);
}

/* ---- the program's own copies ---- */

static enum sim_step wait_at(struct sim *sim, void *argument)
{
	(void)sim;
	_Atomic uint64_t *const *word = argument;
	return atomic_load(*word) ? SIM_STEP_DONE : SIM_STEP_SPINS;
}
static const struct sim_kernel gated = {"gated", wait_at};

/* A copy behind a kernel still writes the buffer; the operation is on another stream. */
static void operation_after_copy(struct rank *rank)
{
	static int32_t mine[COUNT];
	static _Atomic uint64_t gate;
	_Atomic uint64_t *at = &gate;
	ls_op *op;
	if (rank->rank > 0) {
		take_part(1, rank);
		return;
	}
	char *a = device_block(rank, BYTES);
	struct sim_event *event;
	MUST(sim_event_open(rank->sim, &event) == SIM_OK);
	MUST(sim_launch(rank->streams[0], &gated, &at, sizeof at) == SIM_OK);
	to_device(rank, 0, a, mine, BYTES);
	MUST(sum(rank, a, a, 1, &op) == LS_BAD_ARGUMENT && !op);
	MUST(SAID("all-reduce on stream", "reads the 4000 bytes", "sim_copy on stream",
		  "may still write", "follow an event"));
	MUST(sum(rank, a, a, -1, NULL) == LS_BAD_ARGUMENT);
	MUST(sim_record(event, rank->streams[0]) == SIM_OK);
	MUST(sim_follow(rank->streams[1], event) == SIM_OK);
	MUST(sum(rank, a, a, 1, &op) == LS_OK);
	sim_board_store(rank->sim, &gate, 1);
	allow(1);
	end(op);
	MUST(ls_device_free(rank->group, a) == LS_OK && sim_event_close(event) == SIM_OK);
}

/* The other way round it has happened when it is seen, so the group fails, on all ranks. */
static void copy_after_operation(struct rank *rank)
{
	int32_t mine[COUNT] = {0};
	ls_op *op;
	struct ls_failure failure = {.size = sizeof failure};
	if (rank->rank > 0) {
		await_step(1);
		MUST(sum(rank, mine, mine, -1, NULL) == LS_ABORTED);
		MUST(ls_group_failure(rank->group, &failure) == LS_OK && failure.rank == 0);
		MUST(strstr(failure.text, "sim_copy") && strstr(failure.text, "all-reduce #1") &&
		     strstr(failure.text, "races_test.c:"));
		return;
	}
	char *a = device_block(rank, BYTES);
	MUST(sum(rank, a, a, 0, &op) == LS_OK);
	MUST(sim_copy(rank->streams[1], a, mine, BYTES) == SIM_OK);
	allow(1);
	MUST(ls_wait(op, 0) == LS_ABORTED);
	ls_op_free(op);
	/* It is over after the failure: its memory can be used and freed. */
	MUST(sim_copy(rank->streams[1], a, mine, BYTES) == SIM_OK);
	MUST(sim_stream_sync(rank->streams[1]) == SIM_OK);
	MUST(ls_device_free(rank->group, a) == LS_OK);
}

/* After a failure buffers are the program's again, also for another group. */
static void after_failure(struct rank *rank)
{
	static int32_t all[RANKS][LONG];
	int32_t *mine = all[rank->rank];
	ls_group *other;
	ls_op *op;
	MUST(ls_group_split(rank->group, 0, rank->rank, &other) == LS_OK);
	struct ls_op_options options = {.size = sizeof options, .op = &op};
	ls_status status = ls_allreduce(other, mine, mine, COUNT, LS_INT32, LS_SUM, &options);
	MUST(status == LS_OK || status == LS_ABORTED);
	if (rank->rank == 0)
		MUST(ls_group_abort(other, "the test wants it so") == LS_OK);
	if (op)
		status = ls_wait(op, 0);
	MUST(status == LS_OK || status == LS_ABORTED);
	ls_op_free(op);
	MUST(sum(rank, mine, mine, -1, NULL) == LS_OK);
	ls_group_close(other);
}

/* Words and host functions order a stream in ways that nobody can see: nothing is said. */
static void unknown_orders(struct rank *rank)
{
	static _Atomic uint64_t word;
	ls_op *op, *second;
	if (rank->rank > 0) {
		take_part(2, rank);
		return;
	}
	char *a = device_block(rank, BYTES);
	MUST(sim_await(rank->streams[1], &word, 1) == SIM_OK);
	MUST(sum(rank, a, a, 0, &op) == LS_OK);
	MUST(sim_store(rank->streams[0], &word, 1, NULL) == SIM_OK);
	MUST(sum(rank, a, a, 1, &second) == LS_OK);
	allow(1);
	end(op);
	end(second);
	MUST(ls_device_free(rank->group, a) == LS_OK);
}

/* ---- the tests ---- */

static rank_program *current;

/* In the end all that has begun is complete. */
static void run_current(struct rank *rank)
{
	struct ls_failure failure = {.size = sizeof failure};
	current(rank);
	MUST(ls_group_failure(rank->group, &failure) == LS_OK);
	if (failure.status == LS_OK)
		MUST(ls_barrier(rank->group, NULL) == LS_OK);
}

static void check_job(rank_program *program)
{
	allow(0);
	current = program;
	run_job(run_current, "");
}

static void on_the_host(void **state)
{
	(void)state;
	check_job(host_buffers);
	check_job(messages);
	check_job(blocks_of_the_host);
}

static void on_streams(void **state)
{
	(void)state;
	check_job(two_operations);
	check_job(three_streams);
	check_job(unknown_orders);
}

static void freed_memory(void **state)
{
	(void)state;
	check_job(after_free);
}

static void copies(void **state)
{
	(void)state;
	check_job(operation_after_copy);
	check_job(copy_after_operation);
}

static void failures(void **state)
{
	(void)state;
	check_job(after_failure);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(on_the_host),
					   cmocka_unit_test(on_streams),
					   cmocka_unit_test(freed_memory), cmocka_unit_test(copies),
					   cmocka_unit_test(failures)};
	if (setenv("LOCKSTEP_CHECK", "1", 1) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
