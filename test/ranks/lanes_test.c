/* SPDX-License-Identifier: BSD-3-Clause
 * Independent operations do not wait for each other. The tests see that by which operations are
 * complete and which are not, and measure no time. And nothing is made for a pair of ranks when it
 * first exchanges a message. */
#include <stdlib.h>
#include <string.h>

#include "message_ways.h"
#include "process.h"
#include "tests.h"
#include "timeline.h"
#include "transport/transport.h"
#include "values.h"

/* Tags: of what nobody answers until the very end, and of what goes on meanwhile. */
enum { UNANSWERED = 99, ANSWERED = 5 };
enum {
	SHORT = 5,      /* elements of int32: in a slot */
	LONG = 1 << 18, /* stays with its sender */
	UNMATCHED = 2,  /* messages that nobody receives until the end */
	LIMIT_MS = 5000 * RUNNER_SLOWNESS,
	SERIAL_LIMIT_MS = 300, /* where it is known that all will wait for each other */
};

/* How rank 0 calls what nobody answers: by threads that block, by handles, or by handles that
 * threads wait for, and then all else is done by handles, too. */
enum how { THREADS, HANDLES, WAITED };

/* One rank of the test. */
struct lanes {
	struct runner_rank *self;
	ls_group *group;
	enum how how;
	uint64_t count;
	uint32_t limit_ms; /* of what must not wait */
	int32_t *unanswered, *answered, *mine, *sum;
	pthread_t receiver, sender;
	ls_request *receive, *sends[UNMATCHED];
	_Atomic bool received;
};

/* Draws what all ranks did, and fails. */
_Noreturn static void fail_drawn(int line, const char *call, ls_status status)
{
	timeline_print(stderr);
	runner_fail(__FILE__, line, "%s is %s: it waited for what nobody answers", call,
		    ls_status_name(status));
}

#define GOES_ON(call)                                         \
	do {                                                  \
		ls_status status_ = (call);                   \
		if (status_ != LS_OK)                         \
			fail_drawn(__LINE__, #call, status_); \
	} while (0)

static ls_status pass(const struct lanes *lanes, int32_t *buffer, bool sends, int peer, int tag)
{
	struct message message = {.group = lanes->group,
				  .buffer = buffer,
				  .count = lanes->count,
				  .peer = peer,
				  .tag = tag,
				  .sends = sends};
	return message_pass(&message, lanes->how == WAITED ? HANDLE : BLOCKING,
			    tag == ANSWERED ? lanes->limit_ms : 0);
}

/* ---- what nobody answers ---- */

static void *receive_unanswered(void *argument)
{
	struct lanes *lanes = argument;
	OK(pass(lanes, lanes->unanswered, false, 1, UNANSWERED));
	atomic_store(&lanes->received, true);
	return NULL;
}

static void *send_unanswered(void *argument)
{
	struct lanes *lanes = argument;
	for (int i = 0; i < UNMATCHED; i++)
		OK(pass(lanes, lanes->mine, true, 1, UNANSWERED));
	return NULL;
}

/* Until the receive stands in the trace: the thread is inside its call. */
static void await_begun(void)
{
	for (bool begun = false; !begun;) {
		char *text = NULL;
		size_t bytes;
		FILE *out = open_memstream(&text, &bytes);
		CHECK(out);
		timeline_print(out);
		CHECK(fclose(out) == 0);
		begun = strstr(text, "from 1 tag 99") != NULL;
		free(text);
	}
}

static void begin_unanswered(struct lanes *lanes)
{
	struct ls_call_options options = {.size = sizeof options, .tag = UNANSWERED};
	if (lanes->how != HANDLES) {
		CHECK(pthread_create(&lanes->receiver, NULL, receive_unanswered, lanes) == 0);
		CHECK(pthread_create(&lanes->sender, NULL, send_unanswered, lanes) == 0);
		await_begun();
		return;
	}
	OK(ls_irecv(lanes->group, lanes->unanswered, lanes->count, LS_INT32, 1, &options,
		    &lanes->receive));
	for (int i = 0; i < UNMATCHED; i++)
		OK(ls_isend(lanes->group, lanes->mine, lanes->count, LS_INT32, 1, &options,
			    &lanes->sends[i]));
}

static bool is_unanswered(struct lanes *lanes)
{
	return lanes->how != HANDLES ? !atomic_load(&lanes->received)
				     : ls_test(lanes->receive) == LS_PENDING;
}

static void finish(ls_request *op)
{
	OK(ls_wait(op, 0));
	ls_request_free(op);
}

static void end_unanswered(struct lanes *lanes)
{
	if (lanes->how != HANDLES) {
		pthread_join(lanes->receiver, NULL);
		pthread_join(lanes->sender, NULL);
	} else {
		finish(lanes->receive);
		for (int i = 0; i < UNMATCHED; i++)
			finish(lanes->sends[i]);
	}
	values_check_from(lanes->unanswered, lanes->count, LS_INT32, 1, 0);
}

/* Rank 1, when all else is over. */
static void answer(struct lanes *lanes)
{
	values_fill(lanes->mine, lanes->count, LS_INT32, LS_SUM, 1, 0);
	OK(pass(lanes, lanes->mine, true, 0, UNANSWERED));
	for (int i = 0; i < UNMATCHED; i++)
		OK(pass(lanes, lanes->answered, false, 0, UNANSWERED));
}

/* ---- what goes on ---- */

static void send_answered(struct lanes *lanes, int to, unsigned turn)
{
	int32_t *buffer = values_alloc(lanes->group, lanes->count * 4, turn & 1);
	values_fill(buffer, lanes->count, LS_INT32, LS_SUM, lanes->self->rank, turn);
	GOES_ON(pass(lanes, buffer, true, to, ANSWERED));
	values_free(lanes->group, buffer, turn & 1);
}

static void receive_answered(struct lanes *lanes, int from, unsigned turn)
{
	GOES_ON(pass(lanes, lanes->answered, false, from, ANSWERED));
	values_check_from(lanes->answered, lanes->count, LS_INT32, from, turn);
}

/* Another peer, all ranks together, and another tag of the same peer. */
static void go_on(struct lanes *lanes, unsigned turn)
{
	struct ls_call_options options = {.size = sizeof options, .timeout_ms = lanes->limit_ms};
	int rank = lanes->self->rank;
	if (rank == 0)
		send_answered(lanes, 2, turn);
	if (rank == 2)
		receive_answered(lanes, 0, turn);
	values_fill(lanes->sum, lanes->count, LS_INT32, LS_SUM, rank, turn);
	GOES_ON(ls_allreduce(lanes->group, lanes->sum, lanes->sum, lanes->count, LS_INT32, LS_SUM,
			     &options));
	values_check_reduced(lanes->sum, lanes->count, LS_INT32, LS_SUM, lanes->self->size, turn);
	if (rank == 1)
		send_answered(lanes, 0, turn);
	if (rank == 0)
		receive_answered(lanes, 1, turn);
}

/* Rank 0 receives what rank 1 sends at the very end, and sends what rank 1 receives at the very
 * end. */
static void unanswered(struct runner_rank *self, enum how how, uint64_t count, uint32_t limit_ms)
{
	enum { TURNS = 20 };
	struct lanes lanes = {.self = self, .how = how, .count = count, .limit_ms = limit_ms};
	int32_t **buffers[] = {&lanes.unanswered, &lanes.answered, &lanes.mine, &lanes.sum};
	lanes.group = runner_open(self);
	for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
		*buffers[i] = values_alloc(lanes.group, count * 4, false);
	values_blot(lanes.mine, count, LS_INT32, 0);
	if (self->rank == 0)
		begin_unanswered(&lanes);
	runner_meet(self);
	for (unsigned turn = 0; turn < TURNS; turn++)
		go_on(&lanes, turn);
	runner_meet(self); /* all of that is over, on all ranks */
	if (self->rank == 0)
		CHECK(is_unanswered(&lanes));
	runner_meet(self);
	if (self->rank == 1)
		answer(&lanes);
	if (self->rank == 0)
		end_unanswered(&lanes);
	runner_meet(self); /* nobody draws any more */
	for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
		values_free(lanes.group, *buffers[i], false);
	ls_group_close(lanes.group);
}

void unanswered_in_threads(struct runner_rank *self)
{
	unanswered(self, THREADS, SHORT, LIMIT_MS);
}

void unanswered_in_threads_long(struct runner_rank *self)
{
	unanswered(self, THREADS, LONG, LIMIT_MS);
}

void unanswered_handles(struct runner_rank *self)
{
	unanswered(self, HANDLES, SHORT, LIMIT_MS);
}

void unanswered_handles_long(struct runner_rank *self)
{
	unanswered(self, HANDLES, LONG, LIMIT_MS);
}

void unanswered_waited(struct runner_rank *self)
{
	unanswered(self, WAITED, SHORT, LIMIT_MS);
}

void unanswered_waited_long(struct runner_rank *self)
{
	unanswered(self, WAITED, LONG, LIMIT_MS);
}

/* For a setting under which sends wait for each other: the test sees it. */
void unanswered_in_series(struct runner_rank *self)
{
	unanswered(self, HANDLES, LONG, SERIAL_LIMIT_MS);
}

/* ---- nothing is made for a pair ---- */

/* What a pair says to each other: in a slot, in a copy of a plain buffer, read from plain memory,
 * and from shared memory to shared memory. */
enum { TALK_COPIED = 8000, TALK_LONG = 4 << 20, TALKS = 4, TALKS_PLAIN = 3 };
static const struct talk {
	uint64_t bytes;
	bool plain;
} talks[TALKS] = {{100, true}, {TALK_COPIED, true}, {TALK_LONG, true}, {TALK_LONG, false}};

struct talker {
	const struct runner_rank *self;
	ls_group *group;
	unsigned char *from[2], *to[2]; /* shared, plain */
};

static void exchange(struct talker *talker, int with, int count)
{
	for (int i = 0; i < count; i++) {
		const struct talk *talk = &talks[i];
		unsigned char *from = talker->from[talk->plain], *to = talker->to[talk->plain];
		ls_request *ops[2];
		values_fill(from, talk->bytes, LS_UINT8, LS_SUM, talker->self->rank, (unsigned)i);
		OK(ls_irecv(talker->group, to, talk->bytes, LS_UINT8, with, NULL, &ops[0]));
		OK(ls_isend(talker->group, from, talk->bytes, LS_UINT8, with, NULL, &ops[1]));
		finish(ops[0]);
		finish(ops[1]);
		values_check_from(to, talk->bytes, LS_UINT8, with, (unsigned)i);
	}
}

/* All pairs up to this distance in the ring of ranks, in one order: a rank never has more under way
 * than one exchange. */
static void exchange_all(struct talker *talker, int distance, int count)
{
	int rank = talker->self->rank, size = talker->self->size;
	for (int a = 0; a < size; a++)
		for (int b = a; b < size; b++) {
			int apart = b - a < size - (b - a) ? b - a : size - (b - a);
			if (apart <= distance && (a == rank || b == rank))
				exchange(talker, a == rank ? b : a, count);
		}
	runner_meet(talker->self);
}

struct held {
	int descriptors, threads, mappings;
	long memfd_kib, shared_kib, private_kib;
};

static struct held measure(const struct runner_rank *self)
{
	struct held held = {process_entries("/proc/self/fd"), process_entries("/proc/self/task"),
			    process_lines("/proc/self/maps"), process_memfd_kib(),
			    process_kib("RssShmem:"),         process_kib("RssAnon:")};
	runner_meet(self); /* nobody touches what another counts */
	return held;
}

/* The files that all ranks share have at most files_kib more than before, and this process has
 * touched at most more_kib for the first time. */
static void check_held(const struct held *before, const struct held *now, long files_kib,
		       long more_kib)
{
	enum { HEAP_KIB = RUNNER_SLOWNESS > 1 ? 1024 : 64 }; /* the C library's own */
	CHECK_THAT(now->descriptors == before->descriptors, "%d descriptors became %d",
		   before->descriptors, now->descriptors);
	CHECK_THAT(now->threads == before->threads, "%d threads became %d", before->threads,
		   now->threads);
	CHECK_THAT(now->mappings == before->mappings, "%d mappings became %d", before->mappings,
		   now->mappings);
	CHECK_THAT(now->memfd_kib - before->memfd_kib <= files_kib,
		   "%ld KiB of shared files became %ld, which is more than %ld more",
		   before->memfd_kib, now->memfd_kib, files_kib);
	CHECK_THAT(now->shared_kib - before->shared_kib <= more_kib,
		   "%ld KiB of shared memory became %ld, which is more than %ld more",
		   before->shared_kib, now->shared_kib, more_kib);
	CHECK_THAT(now->private_kib - before->private_kib <= HEAP_KIB,
		   "%ld KiB of private memory became %ld", before->private_kib, now->private_kib);
}

/* Six ranks: each talks to itself and its neighbours, and then to all. Run with
 * LOCKSTEP_CMA=always: where a read is slow, long messages of plain memory would need copies. */
void pairs_need_nothing(struct runner_rank *self)
{
	/* Pages of doorbells and counters; and what Linux maps around a page that is touched. */
	enum { PAGE_KIB = 4, WORDS = 4, AROUND_KIB = 64 };
	long inbox_kib = ((long)sizeof(struct transport_inbox) / 4096 + 2) * PAGE_KIB;
	long copy_kib = (TALK_COPIED / 4096 + 2) * PAGE_KIB;
	long peer_kib = 2 * inbox_kib + copy_kib + WORDS * PAGE_KIB + AROUND_KIB;
	long peers = self->size - 3;
	long files_kib = self->size * peers * inbox_kib; /* all ranks' new inboxes */
	struct talker talker = {.self = self, .group = runner_open(self)};
	for (int plain = 0; plain < 2; plain++) {
		talker.from[plain] = values_alloc(talker.group, TALK_LONG, plain);
		talker.to[plain] = values_alloc(talker.group, TALK_LONG, plain);
		values_blot(talker.from[plain], TALK_LONG, LS_UINT8, 1);
		values_blot(talker.to[plain], TALK_LONG, LS_UINT8, 1);
	}
	exchange_all(&talker, 1, TALKS);
	measure(self); /* takes what measuring itself needs */
	exchange_all(&talker, 1, TALKS);
	struct held few = measure(self);
	exchange_all(&talker, self->size, TALKS_PLAIN);
	struct held all = measure(self);
	check_held(&few, &all, files_kib, peers * peer_kib);
	/* Of these the receiver maps the sender's buffer, and the sender, which helps, the
	 * receiver's. */
	exchange_all(&talker, self->size, TALKS);
	all = measure(self);
	check_held(&few, &all, files_kib, peers * (peer_kib + 2 * (TALK_LONG / 1024 + PAGE_KIB)));
	for (int plain = 0; plain < 2; plain++) {
		values_free(talker.group, talker.from[plain], plain);
		values_free(talker.group, talker.to[plain], plain);
	}
	ls_group_close(talker.group);
}
