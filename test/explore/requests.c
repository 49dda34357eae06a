/* SPDX-License-Identifier: BSD-3-Clause
 * Receives that one thread of rank 0 posts, and that other threads await, test and cancel: each one
 * by up to two threads. Rank 1 and a thread of rank 0 itself send the messages, short ones and long
 * ones. In the end both ranks may wait for a message that no rank sends. That deadlock has to be
 * proved, whichever thread has taken in the last message before it. */
#include <stdio.h>

#include "scheduler.h"
#include "subjects.h"

enum {
	RANKS = 2,
	OPS_MAX = 8,
	THREADS_MAX = 3, /* of rank 0, beside its main thread: they use the requests */
	SENDERS = 3,     /* two threads of rank 1, and one of rank 0 */
	COUNT_MAX = 3000,
	APART_US = 400,
	NEVER = 99, /* a tag */
	LIMIT_MS = 1,
};

enum use { LEFT, WAITS, TESTS, BRIEFLY, ANY, CANCELS, USES };
enum last { NOTHING, RECEIVES, POSTS, LIMITED, LASTS };

struct receive {
	uint64_t count;
	enum use uses[THREADS_MAX];
	int sender; /* -1: nobody sends it */
	bool any_source, calls_back, waits;
	ls_request *request;
	ls_status status;
	bool known; /* the status */
	int32_t values[COUNT_MAX], out[COUNT_MAX];
};

static struct {
	int ops, threads, ended, posted, called, calls, over;
	enum last last;
	bool serial, cancels_first; /* what nobody sends is cancelled before the end */
	uint64_t post_us[OPS_MAX], send_us[OPS_MAX];
	ls_group *worlds[RANKS];
	struct receive receives[OPS_MAX];
} drawn;

static uint64_t next(uint64_t *random, uint64_t limit)
{
	*random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*random >> 33) % limit;
}

static void draw_one(uint64_t *seed, struct receive *receive)
{
	static const uint64_t counts[] = {1, 1, 1, 100, COUNT_MAX};
	receive->count = counts[next(seed, 5)];
	receive->sender = next(seed, 8) ? (int)next(seed, SENDERS) : -1;
	receive->any_source = next(seed, 8) == 0;
	receive->calls_back = receive->sender >= 0 && next(seed, 6) == 0;
	receive->waits = next(seed, 2);
	int users = receive->calls_back ? 0 : 1 + (int)next(seed, 2);
	for (int i = 0; i < users; i++) {
		enum use use = (enum use)(WAITS + next(seed, USES - WAITS));
		if (use == CANCELS && receive->sender < 0)
			use = WAITS; /* the main thread cancels it */
		receive->uses[next(seed, (uint64_t)drawn.threads)] = use;
	}
}

static void draw(uint64_t seed, struct subject_plan *plan)
{
	plan->ranks = RANKS;
	drawn.ops = 1 + (int)next(&seed, OPS_MAX);
	drawn.threads = 1 + (int)next(&seed, THREADS_MAX);
	drawn.last = (enum last)next(&seed, LASTS);
	drawn.serial = next(&seed, 8) == 0;
	plan->is_well = drawn.last == NOTHING;
	for (int i = 0; i < drawn.ops; i++) {
		drawn.post_us[i] = next(&seed, 2) * next(&seed, APART_US);
		drawn.send_us[i] = next(&seed, 2) * next(&seed, APART_US);
		draw_one(&seed, &drawn.receives[i]);
		drawn.calls += drawn.receives[i].calls_back;
	}
	snprintf(plan->settings, sizeof plan->settings, "LOCKSTEP_P2P=%s",
		 drawn.serial ? "serial" : "auto");
}

static void compute(uint64_t us)
{
	static const int never;
	if (us)
		scheduler_await(&never, 1, scheduler_now_ns() + 1000 * us);
}

static void must(ls_status status, const char *what, int i)
{
	if (status != LS_OK)
		scheduler_fail("%s of message %d is %s", what, i, ls_status_name(status));
}

static int32_t value_of(int i, uint64_t place)
{
	return 1000 * (i + 1) + (int32_t)(place % 997);
}

static void check_values(int i)
{
	const struct receive *receive = &drawn.receives[i];
	for (uint64_t k = 0; k < receive->count; k++)
		if (receive->values[k] != value_of(i, k))
			scheduler_fail("message %d has %d at %d", i, (int)receive->values[k],
				       (int)k);
	scheduler_progress();
}

/* ---- the threads that send ---- */

static int source_of(const struct receive *receive)
{
	return receive->sender == 2 ? 0 : 1;
}

static void send_all(void *data)
{
	int sender = *(int *)data;
	ls_group *world = drawn.worlds[sender == 2 ? 0 : 1];
	for (int i = 0; i < drawn.ops; i++) {
		struct receive *receive = &drawn.receives[i];
		struct ls_call_options options = {.size = sizeof options, .tag = i};
		ls_request *request;
		if (receive->sender != sender)
			continue;
		compute(drawn.send_us[i]);
		for (uint64_t k = 0; k < receive->count; k++)
			receive->out[k] = value_of(i, k);
		if (!receive->waits) {
			must(ls_send(world, receive->out, receive->count, LS_INT32, 0, &options),
			     "the send", i);
			continue;
		}
		must(ls_isend(world, receive->out, receive->count, LS_INT32, 0, &options, &request),
		     "the nonblocking send", i);
		must(ls_wait(request, 0), "the wait for the send", i);
		ls_request_free(request);
	}
}

/* ---- the threads that use the requests ---- */

static void note(int i, ls_status status)
{
	struct receive *receive = &drawn.receives[i];
	if (receive->known && receive->status != status)
		scheduler_fail("message %d: %s, and then %s", i, ls_status_name(receive->status),
			       ls_status_name(status));
	receive->known = true;
	receive->status = status;
	if (status == LS_OK)
		check_values(i);
	else if (status != LS_CANCELLED)
		scheduler_fail("message %d: %s", i, ls_status_name(status));
}

/* Cancelled, it leaves a message, which the thread receives. */
static void cancel(int i)
{
	struct receive *receive = &drawn.receives[i];
	struct ls_call_options options = {.size = sizeof options, .tag = i};
	static int32_t again[OPS_MAX][COUNT_MAX];
	ls_status status = ls_cancel(receive->request);
	if (status == LS_PENDING) { /* too late */
		note(i, ls_wait(receive->request, 0));
		return;
	}
	must(status, "the cancel", i);
	status = ls_wait(receive->request, 0);
	note(i, status);
	if (status != LS_CANCELLED)
		return; /* another thread has read the status before: it says so */
	must(ls_recv(drawn.worlds[0], again[i], receive->count, LS_INT32, source_of(receive),
		     &options),
	     "the receive after the cancel", i);
	for (uint64_t k = 0; k < receive->count; k++)
		if (again[i][k] != value_of(i, k))
			scheduler_fail("message %d, after the cancel, has %d", i, (int)again[i][k]);
	scheduler_progress();
}

static void use_one(int i, enum use use)
{
	ls_request *request = drawn.receives[i].request;
	ls_status status = LS_PENDING;
	int index;
	while (status == LS_PENDING) {
		if (use == WAITS)
			status = ls_wait(request, 0);
		else if (use == BRIEFLY)
			status = ls_wait(request, 1);
		else if (use == ANY)
			status = ls_wait_any(&request, 1, 0, &index);
		else
			status = ls_test(request);
		if (use == TESTS && status == LS_PENDING)
			scheduler_yield();
	}
	note(i, status);
}

static void use_all(void *data)
{
	int thread = *(int *)data;
	for (int i = 0; i < drawn.ops; i++) {
		enum use use = drawn.receives[i].uses[thread];
		if (use == LEFT)
			continue;
		scheduler_await(&drawn.posted, i + 1, UINT64_MAX);
		if (use == CANCELS)
			cancel(i);
		else
			use_one(i, use);
	}
}

/* ---- the main threads ---- */

static void called(void *data, ls_status status)
{
	must(status, "the callback", (int)((struct receive *)data - drawn.receives));
	scheduler_store(&drawn.called, drawn.called + 1);
}

static void post_all(ls_group *world)
{
	for (int i = 0; i < drawn.ops; i++) {
		struct receive *receive = &drawn.receives[i];
		struct ls_call_options options = {.size = sizeof options, .tag = i};
		compute(drawn.post_us[i]);
		if (receive->calls_back) {
			options.callback = called;
			options.callback_data = receive;
		}
		must(ls_irecv(world, receive->values, receive->count, LS_INT32,
			      receive->any_source ? LS_ANY_SOURCE : source_of(receive), &options,
			      &receive->request),
		     "the receive", i);
		scheduler_store(&drawn.posted, i + 1);
	}
}

static void cancel_unsent(void)
{
	for (int i = 0; i < drawn.ops; i++)
		if (drawn.receives[i].sender < 0)
			must(ls_cancel(drawn.receives[i].request), "the cancel of the unsent", i);
}

static void wait_for_ever(ls_group *world, int rank)
{
	static int32_t never[RANKS];
	struct ls_call_options options = {.size = sizeof options, .tag = NEVER};
	ls_request *request;
	ls_status status;
	if (drawn.last == RECEIVES) {
		status = ls_recv(world, &never[rank], 1, LS_INT32, 1 - rank, &options);
	} else {
		must(ls_irecv(world, &never[rank], 1, LS_INT32, 1 - rank, &options, &request),
		     "the last receive", 0);
		status = ls_wait(request, 0);
		ls_request_free(request);
	}
	if (status != LS_DEADLOCK)
		scheduler_fail("rank %d: the deadlock gives %s", rank, ls_status_name(status));
	scheduler_progress();
}

/* The message comes at about the time limit of the receive. */
static void race_with_limit(ls_group *world, int rank)
{
	static int32_t value = -1, sent = 7;
	struct ls_call_options options = {
		.size = sizeof options, .tag = NEVER, .timeout_ms = rank == 0 ? LIMIT_MS : 0};
	ls_request *request;
	ls_status status = LS_PENDING;
	compute(rank == 0 ? 0 : 1000 * LIMIT_MS - APART_US / 2 + drawn.send_us[0]);
	if (rank == 1) {
		status = ls_send(world, &sent, 1, LS_INT32, 0, &options);
	} else {
		must(ls_irecv(world, &value, 1, LS_INT32, 1, &options, &request),
		     "the limited receive", 0);
		while (status == LS_PENDING)
			status = drawn.receives[0].waits ? ls_wait(request, 0) : ls_test(request);
		ls_request_free(request);
	}
	if (status != LS_TIMED_OUT && (status != LS_OK || (rank == 0 && value != sent)))
		scheduler_fail("rank %d: at the time limit %s, %d", rank, ls_status_name(status),
			       (int)value);
	scheduler_progress();
}

static void run(int rank, ls_group *world)
{
	static int numbers[] = {0, 1, 2};
	static const char *const names[] = {"user 0", "user 1", "user 2"};
	int threads[THREADS_MAX], sender;
	drawn.worlds[rank] = world;
	sender = scheduler_spawn(rank, "sender", send_all, &numbers[rank ? 1 : 2]);
	if (rank == 1) {
		send_all(&numbers[0]);
	} else {
		for (int i = 0; i < drawn.threads; i++)
			threads[i] = scheduler_spawn(rank, names[i], use_all, &numbers[i]);
		post_all(world);
		cancel_unsent();
		for (int i = 0; i < drawn.threads; i++)
			scheduler_join(threads[i]);
		scheduler_await(&drawn.called, drawn.calls, UINT64_MAX);
	}
	scheduler_join(sender);
	if (rank == 0)
		scheduler_store(&drawn.over, 1);
	else /* a receive that is yet to be cancelled must not learn that it can never end */
		scheduler_await(&drawn.over, 1, UINT64_MAX);
	if (drawn.last == LIMITED)
		race_with_limit(world, rank);
	else if (drawn.last != NOTHING)
		wait_for_ever(world, rank);
	for (int i = 0; rank == 0 && i < drawn.ops; i++)
		ls_request_free(drawn.receives[i].request);
	ls_group_close(world);
	drawn.ended++;
}

static void judge(void)
{
	if (drawn.ended != RANKS)
		scheduler_fail("only %d ranks have ended", drawn.ended);
	for (int i = 0; i < drawn.ops; i++) {
		const struct receive *receive = &drawn.receives[i];
		if (receive->known && receive->sender < 0 && receive->status != LS_CANCELLED)
			scheduler_fail("nobody has sent message %d, and it was received", i);
	}
}

static void show(FILE *file)
{
	static const char *const uses[] = {
		"-", "waits", "tests", "waits briefly", "waits for any", "cancels"};
	static const char *const lasts[] = {"nothing", "a receive", "a posted receive",
					    "a receive and its time limit"};
	fprintf(file, "LOCKSTEP_P2P=%s; in the end: %s\n", drawn.serial ? "serial" : "auto",
		lasts[drawn.last]);
	for (int i = 0; i < drawn.ops; i++) {
		const struct receive *receive = &drawn.receives[i];
		fprintf(file,
			"message %d: %d elements, sender %d%s%s%s; posted after %d us, sent after %d us;",
			i, (int)receive->count, receive->sender,
			receive->any_source ? ", any source" : "",
			receive->calls_back ? ", callback" : "", receive->waits ? ", isend" : "",
			(int)drawn.post_us[i], (int)drawn.send_us[i]);
		for (int t = 0; t < drawn.threads; t++)
			fprintf(file, " %s", uses[receive->uses[t]]);
		fprintf(file, "\n");
	}
}

const struct subject subject_requests = {
	.name = "requests", .weight = 1, .draw = draw, .run = run, .judge = judge, .show = show};
