/* SPDX-License-Identifier: BSD-3-Clause
 * As host_races_test.c, with streams: two streams without an order between them, memory of the
 * device, and the program's own copies. */
#include "races_fixture.h"

/* ---- streams ---- */

/* An operation on one stream, and then another on a second stream without an order between them. */
static void two_operations(struct rank *rank)
{
	ls_request *op, *second;
	if (rank->rank > 0) {
		take_part(3, rank);
		return;
	}
	char *a = device_block(rank, 2 * BYTES), *b = a + BYTES;
	ls_group *group = rank->group;
	struct ls_call_options on_first = on(rank, 0), on_second = on(rank, 1);
	on_first.request = &op;
	on_second.request = &second;
	/* clang-format off: a line each */
	int line = __LINE__ + 1;
	ls_status status = ls_allreduce(group, a, b, COUNT, LS_INT32, LS_SUM, &on_first);
	ls_status refused = ls_allreduce(group, b, a, COUNT, LS_INT32, LS_SUM, &on_second);
	/* clang-format on */
	MUST(status == LS_OK && refused == LS_BAD_ARGUMENT && op && !second);
	MUST(has_said_lines("races_test.c", line));
	/* Nor may the host touch it. */
	MUST(ls_send(rank->group, b, COUNT, LS_INT32, 1, NULL) == LS_BAD_ARGUMENT);
	MUST(SAID("send, called", "all-reduce #1 on stream", "synchronise of its stream"));
	/* The correct way. */
	MUST(ls_request_follow(op, rank->streams[1]) == LS_OK);
	MUST(sum(rank, b, b, 1, &second) == LS_OK);
	/* An event makes an order, too. */
	struct sim_event *event;
	MUST(sim_event_open(rank->sim, &event) == SIM_OK);
	MUST(sim_record(event, rank->streams[1]) == SIM_OK);
	on_first.request = NULL;
	MUST(ls_send(rank->group, b, 1, LS_INT32, 1, &on_first) == LS_BAD_ARGUMENT);
	MUST(sim_follow(rank->streams[0], event) == SIM_OK);
	MUST(sum(rank, b, a, 0, NULL) == LS_OK);
	allow(1);
	end(op);
	end(second);
	MUST(sim_stream_sync(rank->streams[0]) == SIM_OK);
	/* The host has waited for the stream by a call of which Lockstep does not know. */
	MUST(ls_device_free(rank->group, a) == LS_OK);
	MUST(sim_event_close(event) == SIM_OK);
}

/* Three streams: what follows the second stream follows the first one as well. */
static void three_streams(struct rank *rank)
{
	struct sim_stream *third;
	struct sim_event *event;
	ls_request *op;
	if (rank->rank > 0) {
		take_part(3, rank);
		return;
	}
	MUST(sim_stream_open(rank->sim, 0, &third) == SIM_OK);
	MUST(sim_event_open(rank->sim, &event) == SIM_OK);
	char *a = device_block(rank, BYTES), *b = device_block(rank, BYTES);
	struct ls_call_options on_third = {.size = sizeof on_third, .stream = third};
	MUST(sum(rank, a, a, 0, &op) == LS_OK);
	MUST(ls_request_follow(op, rank->streams[1]) == LS_OK);
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

/* A stream or event that is closed and opened again has the same address, but is another one. */
static void opened_again(struct rank *rank)
{
	static _Atomic uint64_t word;
	struct sim_event *event, *new_event;
	struct sim_stream *third, *new_third;
	ls_request *op;
	if (rank->rank > 0) {
		take_part(1, rank);
		return;
	}
	char *a = device_block(rank, BYTES);
	MUST(sum(rank, a, a, 0, &op) == LS_OK);
	MUST(sim_event_open(rank->sim, &event) == SIM_OK);
	MUST(sim_record(event, rank->streams[0]) == SIM_OK);
	MUST(sim_event_close(event) == SIM_OK);
	MUST(sim_event_open(rank->sim, &new_event) == SIM_OK && new_event == event);
	MUST(sim_follow(rank->streams[1], new_event) == SIM_OK); /* no wait */
	MUST(sum(rank, a, a, 1, NULL) == LS_BAD_ARGUMENT);
	MUST(SAID("all-reduce on stream", "all-reduce #1 on stream", "follow"));
	MUST(sim_stream_open(rank->sim, 0, &third) == SIM_OK);
	atomic_store(&word, 1);
	MUST(sim_await(third, &word, 1) == SIM_OK);
	MUST(sim_stream_close(third) == SIM_OK);
	MUST(sim_stream_open(rank->sim, 0, &new_third) == SIM_OK && new_third == third);
	struct ls_call_options on_third = {.size = sizeof on_third, .stream = new_third};
	MUST(ls_send(rank->group, a, 1, LS_INT32, 1, &on_third) == LS_BAD_ARGUMENT);
	MUST(SAID("send on stream", "all-reduce #1 on stream", "follow"));
	allow(1);
	end(op);
	MUST(sim_stream_close(new_third) == SIM_OK && sim_event_close(new_event) == SIM_OK);
	MUST(ls_device_free(rank->group, a) == LS_OK);
}

/* In its stream a collective waits for the earlier ones of its group; also without memory. */
static void barriers(struct rank *rank)
{
	static int32_t all[RANKS][COUNT];
	int32_t *got = all[rank->rank];
	ls_request *op, *second;
	if (rank->rank > 0) {
		take_part(1, rank);
		for (int i = 0; i < 3; i++)
			MUST(ls_barrier(rank->group, NULL) == LS_OK);
		for (int i = 0; rank->rank == 1 && i < 2; i++)
			MUST(ls_recv(rank->group, got, COUNT, LS_INT32, 0, NULL) == LS_OK);
		return;
	}
	char *a = device_block(rank, 2 * BYTES), *b = a + BYTES;
	struct ls_call_options on_first = on(rank, 0), on_second = on(rank, 1);
	MUST(sum(rank, a, a, 0, &op) == LS_OK);
	MUST(ls_send(rank->group, a, COUNT, LS_INT32, 1, &on_second) == LS_BAD_ARGUMENT);
	MUST(ls_barrier(rank->group, &on_second) == LS_OK);
	MUST(ls_send(rank->group, a, COUNT, LS_INT32, 1, &on_second) == LS_OK);
	/* What follows a barrier follows all that was before it in its stream. */
	struct sim_stream *third;
	MUST(sim_stream_open(rank->sim, 0, &third) == SIM_OK);
	struct ls_call_options on_third = {.size = sizeof on_third, .stream = third};
	to_device(rank, 0, b, got, BYTES);
	on_first.request = &second;
	MUST(ls_barrier(rank->group, &on_first) == LS_OK);
	MUST(ls_send(rank->group, b, COUNT, LS_INT32, 1, &on_third) == LS_BAD_ARGUMENT);
	MUST(ls_request_follow(second, third) == LS_OK);
	MUST(ls_send(rank->group, b, COUNT, LS_INT32, 1, &on_third) == LS_OK);
	allow(1);
	end(op);
	end(second);
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
	MUST(sim_stream_sync(third) == SIM_OK && ls_device_forget(rank->group, third) == LS_OK);
	MUST(sim_stream_close(third) == SIM_OK && sim_stream_sync(rank->streams[1]) == SIM_OK);
	MUST(ls_device_free(rank->group, a) == LS_OK);
}

/* Freed memory: an operation on it is refused. But the memory that the next allocation gets is used
 * at once. */
static void after_free(struct rank *rank)
{
	ls_request *op, *none;
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

/* A buffer that begins in a block in use, and ends in a freed one. */
static void into_freed(struct rank *rank)
{
	enum { BLOCK = 2048 };
	int32_t got[COUNT];
	if (rank->rank == 1)
		MUST(ls_recv(rank->group, got, COUNT, LS_INT32, 0, NULL) == LS_OK);
	if (rank->rank > 0)
		return;
	char *a = device_block(rank, BLOCK), *b = device_block(rank, BLOCK);
	MUST(b == a + BLOCK);
	MUST(ls_send(rank->group, a, COUNT, LS_INT32, 1, NULL) == LS_OK);
	MUST(ls_device_free(rank->group, b) == LS_OK);
	MUST(ls_send(rank->group, a, COUNT, LS_INT32, 1, NULL) == LS_BAD_ARGUMENT);
	char freed[32];
	snprintf(freed, sizeof freed, "%p", (void *)b);
	MUST(SAID("send, called", freed, "ls_device_free, called from", "has freed"));
	MUST(ls_device_free(rank->group, a) == LS_OK);
}

/* Behind the block in use is memory that was freed so long ago that nothing remembers the call.
 * Behind that is memory that was just freed. */
static void behind_unknown(struct rank *rank)
{
	enum { BLOCK = 1024, FREES = 100 };
	if (rank->rank > 0)
		return;
	char *a = device_block(rank, BLOCK), *b = device_block(rank, BLOCK);
	char *c = device_block(rank, 2 * BLOCK);
	MUST(b == a + BLOCK && c == b + BLOCK);
	MUST(ls_device_free(rank->group, b) == LS_OK);
	for (int i = 0; i < FREES; i++)
		MUST(ls_device_free(rank->group, device_block(rank, LONG + 1)) == LS_OK);
	MUST(ls_device_free(rank->group, c) == LS_OK);
	MUST(ls_send(rank->group, a, COUNT, LS_INT32, 1, NULL) == LS_BAD_ARGUMENT);
	char freed[32];
	snprintf(freed, sizeof freed, "%p", (void *)c);
	MUST(SAID("send, called", freed, "ls_device_free, called from", "has freed"));
	MUST(ls_device_free(rank->group, a) == LS_OK);
}

/* ---- the program's own copies ---- */

static enum sim_step wait_at(struct sim *sim, void *argument)
{
	(void)sim;
	_Atomic uint64_t *const *word = argument;
	return atomic_load(*word) ? SIM_STEP_DONE : SIM_STEP_SPINS;
}
static const struct sim_kernel gated = {"gated", wait_at};

/* A copy behind a kernel still writes the buffer. The operation is on another stream. */
static void operation_after_copy(struct rank *rank)
{
	static int32_t mine[COUNT];
	static _Atomic uint64_t gate;
	_Atomic uint64_t *at = &gate;
	ls_request *op;
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

/* In the other order the copy has already begun when the library sees it, so the group fails, on
 * all ranks. */
static void copy_after_operation(struct rank *rank)
{
	int32_t mine[COUNT] = {0};
	ls_request *op;
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
	ls_request_free(op);
	/* After the failure the operation is over: its memory can be used and freed. */
	MUST(sim_copy(rank->streams[1], a, mine, BYTES) == SIM_OK);
	MUST(sim_stream_sync(rank->streams[1]) == SIM_OK);
	MUST(ls_device_free(rank->group, a) == LS_OK);
}

/* ---- the program's kernels ---- */

struct kernel {
	_Atomic uint64_t *word; /* it ends when this is not 0 */
	char *from, *to;
};

static enum sim_step add_one(struct sim *sim, void *argument)
{
	const struct kernel *kernel = argument;
	if (!atomic_load(kernel->word))
		return SIM_STEP_SPINS;
	const int32_t *from = sim_where(sim, kernel->from);
	int32_t *to = sim_where(sim, kernel->to);
	for (int i = 0; i < COUNT; i++)
		to[i] = from[i] + 1;
	return SIM_STEP_DONE;
}
static const struct sim_kernel adds_one = {"adds_one", add_one};

/* The first two buffers of the kernel touch no memory that others use. */
static enum sim_error launch_named(struct rank *rank, int stream, struct kernel kernel)
{
	static char other[2];
	const struct sim_use uses[] = {{other, 1, true},
				       {other + 1, 1, false},
				       {kernel.from, BYTES, false},
				       {kernel.to, BYTES, true}};
	return sim_launch_using(rank->streams[stream], &adds_one, &kernel, sizeof kernel, uses, 4);
}

/* A kernel computes gradients on one stream. The all-reduce is on another one, which nobody has
 * told to wait for it: the forgotten synchronisation. */
static void operation_after_kernel(struct rank *rank)
{
	static _Atomic uint64_t gate;
	ls_request *op;
	if (rank->rank > 0) {
		take_part(1, rank);
		return;
	}
	char *a = device_block(rank, BYTES), *b = device_block(rank, BYTES);
	struct sim_event *event;
	MUST(sim_event_open(rank->sim, &event) == SIM_OK);
	MUST(launch_named(rank, 1, (struct kernel){&gate, a, b}) == SIM_OK);
	MUST(sum(rank, b, b, 0, &op) == LS_BAD_ARGUMENT && !op);
	MUST(SAID("all-reduce on stream", "reads the 4000 bytes",
		  "sim_launch_using of kernel adds_one on stream", "may still write",
		  "follow an event"));
	MUST(sum(rank, a, a, 0, &op) == LS_BAD_ARGUMENT && !op);
	MUST(SAID("all-reduce on stream", "writes the 4000 bytes", "may still read"));
	MUST(sum(rank, b, b, -1, NULL) == LS_BAD_ARGUMENT);
	MUST(SAID("kernel adds_one", "synchronise of its stream"));
	MUST(ls_device_free(rank->group, b) == LS_BAD_ARGUMENT);
	MUST(SAID("ls_device_free", "kernel adds_one", "ls_device_record"));
	MUST(sim_record(event, rank->streams[1]) == SIM_OK);
	MUST(sim_follow(rank->streams[0], event) == SIM_OK);
	MUST(sum(rank, b, b, 0, &op) == LS_OK);
	sim_board_store(rank->sim, &gate, 1);
	allow(1);
	end(op);
	MUST(ls_device_free(rank->group, a) == LS_OK);
	MUST(ls_device_free(rank->group, b) == LS_OK && sim_event_close(event) == SIM_OK);
}

/* A kernel that only reads, and one with another buffer, do no harm. The one that writes has begun
 * when the library sees it, so the group fails, with both call sites. */
static void kernel_after_operation(struct rank *rank)
{
	static _Atomic uint64_t word = 1;
	int32_t mine[COUNT] = {0};
	ls_request *op;
	struct ls_failure failure = {.size = sizeof failure};
	if (rank->rank > 0) {
		await_step(1);
		MUST(sum(rank, mine, mine, -1, NULL) == LS_ABORTED);
		MUST(ls_group_failure(rank->group, &failure) == LS_OK && failure.rank == 0);
		MUST(strstr(failure.text, "kernel adds_one") &&
		     strstr(failure.text, "all-reduce #1") && strstr(failure.text, "races_test.c:") &&
		     strstr(failure.text, "races_fixture.h:"));
		return;
	}
	char *a = device_block(rank, BYTES), *b = device_block(rank, BYTES);
	char *c = device_block(rank, BYTES);
	MUST(sum(rank, a, b, 0, &op) == LS_OK);
	MUST(launch_named(rank, 1, (struct kernel){&word, a, c}) == SIM_OK);
	MUST(ls_group_failure(rank->group, &failure) == LS_OK && failure.status == LS_OK);
	MUST(launch_named(rank, 1, (struct kernel){&word, c, a}) == SIM_OK);
	allow(1);
	MUST(ls_wait(op, 0) == LS_ABORTED);
	ls_request_free(op);
	MUST(sim_stream_sync(rank->streams[1]) == SIM_OK);
	MUST(ls_device_free(rank->group, a) == LS_OK && ls_device_free(rank->group, b) == LS_OK);
	MUST(ls_device_free(rank->group, c) == LS_OK);
}

/* The library does not see buffers that a kernel has not named, nor work in a capture, which does
 * not run. */
static void unseen_kernels(struct rank *rank)
{
	static _Atomic uint64_t gate;
	struct kernel kernel = {.word = &gate};
	uint64_t count;
	if (rank->rank > 0) {
		take_part(1, rank);
		return;
	}
	char *a = device_block(rank, BYTES);
	kernel.from = kernel.to = a;
	MUST(sim_capture_begin(rank->streams[1]) == SIM_OK);
	MUST(launch_named(rank, 1, kernel) == SIM_OK);
	MUST(sim_capture_end(rank->streams[1], &count) == SIM_OK && count == 1);
	MUST(sim_launch(rank->streams[1], &adds_one, &kernel, sizeof kernel) == SIM_OK);
	ls_request *op;
	MUST(sum(rank, a, a, 0, &op) == LS_OK);
	sim_board_store(rank->sim, &gate, 1);
	MUST(sim_stream_sync(rank->streams[1]) == SIM_OK);
	allow(1);
	end(op);
	MUST(sim_launch_using(rank->streams[1], &adds_one, NULL, 0, NULL, SIM_USES + 1) ==
	     SIM_BAD_VALUE);
	MUST(ls_device_free(rank->group, a) == LS_OK);
}

/* Words and host functions order streams in ways that the library cannot see. So it says
 * nothing. */
static void unknown_orders(struct rank *rank)
{
	static _Atomic uint64_t word;
	ls_request *op, *second;
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

static void on_streams(void **state)
{
	(void)state;
	check_job(two_operations);
	check_job(three_streams);
	check_job(opened_again);
	check_job(barriers);
	check_job(unknown_orders);
}

/* Blocks that the cache has for a stream that is being captured. */
static void cached_in_capture(struct rank *rank)
{
	void *block;
	uint64_t captured;
	MUST(ls_device_alloc(rank->group, BYTES, rank->streams[0], &block) == LS_OK);
	MUST(ls_device_free(rank->group, block) == LS_OK);
	MUST(sim_capture_begin(rank->streams[0]) == SIM_OK);
	MUST(ls_device_alloc(rank->group, BYTES, rank->streams[0], &block) == LS_UNSUPPORTED);
	MUST(!block);
	MUST(sim_capture_end(rank->streams[0], &captured) == SIM_OK && captured == 0);
	MUST(ls_device_alloc(rank->group, BYTES, rank->streams[0], &block) == LS_OK);
	MUST(ls_device_free(rank->group, block) == LS_OK);
}

static void freed_memory(void **state)
{
	(void)state;
	check_job(after_free);
	check_job(into_freed);
	check_job(cached_in_capture);
	check_job(behind_unknown);
}

static void copies(void **state)
{
	(void)state;
	check_job(operation_after_copy);
	check_job(copy_after_operation);
}

static void kernels(void **state)
{
	(void)state;
	check_job(operation_after_kernel);
	check_job(kernel_after_operation);
	check_job(unseen_kernels);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(on_streams),
		cmocka_unit_test(freed_memory),
		cmocka_unit_test(copies),
		cmocka_unit_test(kernels),
	};
	if (setenv("LOCKSTEP_CHECK", "1", 1) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
