/* SPDX-License-Identifier: BSD-3-Clause
 * Wrong arguments of every collective: each is refused with the documented status, on that rank
 * alone and at once, and the group continues as if there had been no call. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "world/ls_group.h"
#include "caught.h"
#include "operation.h"
#include "tests.h"
#include "values.h"

enum { COUNT = 4, ROOM = COUNT * RUNNER_RANKS_MAX };

/* Arguments that would do, to be spoilt one by one. */
struct sound {
	const struct runner_rank *self;
	struct operation_call call;
	struct operation_facts facts;
	uint64_t counts[RUNNER_RANKS_MAX];
	struct ls_buffers buffers[3];
	int32_t send[3][ROOM], recv[3][ROOM + COUNT];
};

/* On each rank with itself as root, so that each has both buffers. */
static void make_sound(struct sound *sound, const struct runner_rank *self, ls_group *group,
		       enum operation_kind kind)
{
	memset(sound, 0, sizeof *sound);
	sound->self = self;
	sound->facts = operation_facts(kind);
	for (int r = 0; r < self->size; r++)
		sound->counts[r] = COUNT;
	for (int i = 0; i < 3; i++)
		sound->buffers[i] = (struct ls_buffers){sound->send[i], sound->recv[i], COUNT};
	sound->call = (struct operation_call){.kind = kind,
					      .group = group,
					      .send = sound->send,
					      .recv = sound->recv,
					      .count = COUNT,
					      .counts = sound->counts,
					      .recv_counts = sound->counts,
					      .buffers = sound->buffers,
					      .buffer_count = 3,
					      .dtype = LS_INT32,
					      .op = LS_SUM,
					      .root = self->rank};
}

/* With a handle: there is none afterwards. */
static void refused(const struct sound *sound, const struct operation_call *wrong, ls_status status,
		    const char *what)
{
	ls_request *handle = (ls_request *)(uintptr_t)64;
	struct ls_call_options options = {.size = sizeof options, .request = &handle};
	struct operation_call call = *wrong;
	runner_note(sound->self, "%s, %s", sound->facts.name, what);
	if (!call.options) {
		GIVES(status, operation_issue(&call));
		call.options = &options;
		GIVES(status, operation_issue(&call));
		CHECK(!handle);
		return;
	}
	GIVES(status, operation_issue(&call));
}

#define REFUSED(sound, status, field, value)                          \
	do {                                                          \
		struct operation_call wrong_ = (sound)->call;         \
		wrong_.field = (value);                               \
		refused(sound, &wrong_, status, #field " = " #value); \
	} while (0)

static void wrong_types(const struct sound *sound)
{
	REFUSED(sound, LS_BAD_ARGUMENT, dtype, (ls_dtype)VALUES_DTYPES);
	REFUSED(sound, LS_BAD_ARGUMENT, dtype, (ls_dtype)-1);
	if (sound->facts.reduces) {
		REFUSED(sound, LS_BAD_ARGUMENT, op, (ls_reduce_op)VALUES_OPS);
		REFUSED(sound, LS_BAD_ARGUMENT, op, (ls_reduce_op)-1);
		REFUSED(sound, LS_UNSUPPORTED, op, LS_PREMUL_SUM);
	}
	if (sound->facts.rooted) {
		REFUSED(sound, LS_BAD_ARGUMENT, root, -1);
		REFUSED(sound, LS_BAD_ARGUMENT, root, sound->self->size);
	}
}

/* Element counts whose bytes, or whose sum, cannot be. */
static void wrong_lists(struct sound *sound)
{
	static const uint64_t too_many[] = {UINT64_MAX, UINT64_MAX / 4, INT64_MAX / 4 + 1};
	int last = sound->self->size - 1;
	uint64_t counts[RUNNER_RANKS_MAX];
	REFUSED(sound, LS_BAD_ARGUMENT, counts, NULL);
	if (sound->call.kind == OPERATION_ALLTOALLV)
		REFUSED(sound, LS_BAD_ARGUMENT, recv_counts, NULL);
	for (int i = 0; i < 3; i++) {
		memcpy(counts, sound->counts, sizeof counts);
		counts[last] = too_many[i];
		REFUSED(sound, LS_BAD_ARGUMENT, counts, counts);
		if (sound->call.kind == OPERATION_ALLTOALLV)
			REFUSED(sound, LS_BAD_ARGUMENT, recv_counts, counts);
	}
}

static void wrong_count(struct sound *sound, uint64_t count)
{
	struct operation_call wrong = sound->call;
	wrong.count = count;
	sound->buffers[1].count = count;
	refused(sound, &wrong, LS_BAD_ARGUMENT, "a count that is too large");
	sound->buffers[1].count = COUNT;
}

static void wrong_counts(struct sound *sound)
{
	wrong_count(sound, UINT64_MAX);
	wrong_count(sound, UINT64_MAX / 4);
	wrong_count(sound, INT64_MAX / 4 + 1);
	switch (sound->call.kind) {
	case OPERATION_ALLREDUCE:
	case OPERATION_ALLREDUCE_MANY:
	case OPERATION_REDUCE:
	case OPERATION_BROADCAST:
	case OPERATION_BROADCAST_MANY:
		break;
	default: /* of one rank it could be */
		wrong_count(sound, INT64_MAX / 4 / (uint64_t)sound->self->size + 1);
	}
}

/* One of several is wrong: none is begun. */
static void wrong_buffers(struct sound *sound)
{
	int32_t(*send)[ROOM] = sound->send;
	REFUSED(sound, LS_BAD_ARGUMENT, buffers, NULL);
	REFUSED(sound, LS_BAD_ARGUMENT, buffer_count, 0);
	REFUSED(sound, LS_BAD_ARGUMENT, buffer_count, -1);
	memset(send, 7, sizeof sound->send);
	for (int i = 0; i < 3; i++) {
		struct ls_buffers *one = &sound->buffers[i];
		one->send = NULL;
		refused(sound, &sound->call, LS_BAD_ARGUMENT, "no send");
		one->send = send[i];
		one->recv = NULL;
		refused(sound, &sound->call, LS_BAD_ARGUMENT, "no recv");
		one->recv = send[i] + 1;
		refused(sound, &sound->call, LS_BAD_ARGUMENT, "an overlap");
		one->recv = sound->recv[i];
	}
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < ROOM; k++)
			CHECK(sound->recv[i][k] == 0);
}

/* An element beside where they would be in place, or in place where that is not allowed. */
static void wrong_places(struct sound *sound)
{
	int32_t *memory = sound->recv[0];
	int mine = COUNT * sound->self->rank;
	switch (sound->call.kind) {
	case OPERATION_ALLTOALL:
	case OPERATION_ALLTOALLV:
		REFUSED(sound, LS_BAD_ARGUMENT, send, memory);
		break;
	case OPERATION_ALLGATHER:
	case OPERATION_ALLGATHERV:
	case OPERATION_GATHER:
	case OPERATION_GATHERV:
		REFUSED(sound, LS_BAD_ARGUMENT, send, memory + mine + 1);
		break;
	case OPERATION_SCATTER:
	case OPERATION_SCATTERV:
	case OPERATION_REDUCE_SCATTER:
	case OPERATION_REDUCE_SCATTERV:
		REFUSED(sound, LS_BAD_ARGUMENT, recv, sound->send[0] + mine + 1);
		break;
	default:
		REFUSED(sound, LS_BAD_ARGUMENT, send, memory + 1);
	}
	REFUSED(sound, LS_BAD_ARGUMENT, send, NULL);
	REFUSED(sound, LS_BAD_ARGUMENT, recv, NULL);
}

static void never(void *data, ls_status status)
{
	runner_fail(__FILE__, __LINE__, "called with %p and %d", data, (int)status);
}

static void wrong_options(const struct sound *sound)
{
	const struct ls_call_options wrong[] = {
		{.size = 0},
		{.size = 3},
		{.size = offsetof(struct ls_call_options, label) + 4, .label = "half a pointer"},
		{.size = sizeof *wrong + 8},
		{.size = sizeof *wrong, .tag = -1},
		{.size = sizeof *wrong, .resumable = 2},
		{.size = sizeof *wrong, .resumable = 1, .callback = never},
		{.size = sizeof *wrong, .stream = (void *)(uintptr_t)sound},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		REFUSED(sound, LS_BAD_ARGUMENT, options, &wrong[i]);
	REFUSED(sound, LS_BAD_ARGUMENT, group, NULL);
}

static void wrong_for_kind(struct sound *sound)
{
	wrong_options(sound);
	if (sound->call.kind == OPERATION_BARRIER)
		return;
	wrong_types(sound);
	if (sound->facts.lists)
		wrong_lists(sound);
	else
		wrong_counts(sound);
	if (sound->facts.many)
		wrong_buffers(sound);
	else
		wrong_places(sound);
}

void wrong_collectives(struct runner_rank *self)
{
	struct sound sound;
	ls_group *group = runner_open(self);
	for (int kind = 0; kind < OPERATION_EXCHANGE; kind++) {
		make_sound(&sound, self, group, (enum operation_kind)kind);
		wrong_for_kind(&sound);
		struct ls_failure failure = {.size = sizeof failure};
		OK(ls_group_failure(group, &failure));
		CHECK(failure.status == LS_OK);
		/* With the same root on all ranks nothing is wrong. */
		sound.call.root = 0;
		OK(operation_issue(&sound.call));
	}
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}

/* ---- calls that do not fit together ---- */

enum fault { COUNT_DIFFERS, DTYPE_DIFFERS, OP_DIFFERS, ROOT_DIFFERS, LIST_DIFFERS, FAULTS };

static bool has_fault(const struct operation_facts *facts, enum fault fault)
{
	switch (fault) {
	case COUNT_DIFFERS:
		return !facts->lists;
	case OP_DIFFERS:
		return facts->reduces;
	case ROOT_DIFFERS:
		return facts->rooted;
	case LIST_DIFFERS:
		return facts->lists;
	default:
		return true;
	}
}

/* The last rank calls something else than the others; of a _many, with one buffer more. */
static void mismatch(const struct runner_rank *self, enum operation_kind kind, enum fault fault,
		     uint64_t count)
{
	ls_group *group = runner_open(self);
	bool odd = self->rank == self->size - 1;
	size_t bytes = (count + 1) * sizeof(int32_t) * (size_t)self->size;
	uint64_t counts[RUNNER_RANKS_MAX], recv_counts[RUNNER_RANKS_MAX];
	for (int r = 0; r < self->size; r++)
		counts[r] = recv_counts[r] = count;
	if (odd && fault == LIST_DIFFERS) { /* with the same sum, as far as that is compared */
		counts[0]++;
		counts[self->size - 1] -= kind != OPERATION_ALLTOALLV;
	}
	void *send = values_alloc(group, bytes, self->rank % 2);
	void *recv = values_alloc(group, bytes, self->rank % 2);
	struct ls_buffers one = {send, recv, count}, buffers[] = {one, one, one};
	struct operation_call call = {
		.kind = kind,
		.group = group,
		.send = send,
		.recv = recv,
		.count = count + (odd && fault == COUNT_DIFFERS),
		.counts = counts,
		.recv_counts = recv_counts,
		.buffers = buffers,
		.buffer_count = 2 + (odd && fault == COUNT_DIFFERS),
		.dtype = odd && fault == DTYPE_DIFFERS ? LS_UINT32 : LS_INT32,
		.op = odd && fault == OP_DIFFERS ? LS_MAX : LS_SUM,
		.root = odd && fault == ROOT_DIFFERS ? 1 : 0,
	};
	runner_note(self, "%s, fault %d, count %llu", operation_facts(kind).name, (int)fault,
		    (unsigned long long)count);
	ls_status status = operation_issue(&call);
	/* A rank that needs nobody is done; it hears of it in its next call. */
	if (status == LS_OK)
		status = ls_barrier(group, NULL);
	GIVES(LS_MISMATCH, status);
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK(failure.status == LS_MISMATCH);
	/* With two ranks, and for the two ranks of an all-to-allv that disagree, none can be called
	 * wrong. */
	if (self->size > 2 && !(kind == OPERATION_ALLTOALLV && fault == LIST_DIFFERS))
		CHECK_THAT(failure.rank == self->size - 1, "rank %d is blamed: %s", failure.rank,
			   failure.text);
	values_free(group, send, self->rank % 2);
	values_free(group, recv, self->rank % 2);
	ls_group_close(group);
	runner_meet(self); /* the next group meets at the same place */
}

/* Ranks 0 and 2 wait for the root, so neither of them compares the two calls. The root comes once a
 * watch has found that they differ; until then nobody can say which of them is wrong. */
static void mismatch_seen_by_a_watch(const struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	const _Atomic uint64_t *claim = &transport_head_of(&group->team)->claim;
	bool odd = self->rank == 2;
	int32_t value = 0;
	runner_note(self, "a broadcast whose root comes late");
	while (self->rank == 1 && (uint32_t)atomic_load(claim) == 0)
		sched_yield();
	ls_status status =
		ls_broadcast(group, &value, &value, 1, odd ? LS_UINT32 : LS_INT32, 1, NULL);
	if (status == LS_OK)
		status = ls_barrier(group, NULL);
	GIVES(LS_MISMATCH, status);
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK_THAT(failure.rank == 2, "rank %d is blamed: %s", failure.rank, failure.text);
	ls_group_close(group);
}

void mismatch_of_every_kind(struct runner_rank *self)
{
	if (self->size == 3)
		mismatch_seen_by_a_watch(self);
	for (int kind = 0; kind < OPERATION_EXCHANGE; kind++) {
		struct operation_facts facts = operation_facts((enum operation_kind)kind);
		for (int fault = 0; fault < FAULTS; fault++)
			if (kind != OPERATION_BARRIER && has_fault(&facts, (enum fault)fault))
				mismatch(self, (enum operation_kind)kind, (enum fault)fault,
					 (kind + fault) % 2 ? 3 : 20000);
	}
}

/* The message names the line of the call that was wrong, also where there is no group to be
 * asked. */
void wrong_calls_are_found(struct runner_rank *self)
{
	static const char *const said[] = {
		"ls_send: dst is 7, but must be a rank of this group, 0 to 0, called from wrong_test.c:",
		"ls_wait: request is NULL, but must be a handle of an operation that has not been freed",
		"ls_reduce: root is -1, but must be a rank of this group, 0 to 0, called from wrong_test.c:",
		"ls_phase_end: 'x' cannot end here: this thread is in no phase, called from wrong_test.c:",
		"ls_group_open: out is NULL, but must be not NULL, called from wrong_test.c:",
		"train.py:42: root is -1, but must be",
		"train.py:42: src is 7, but must be a rank of this group, 0 to 0, or LS_ANY_SOURCE (",
		"train.py:42: ranks is 9, but must be",
		"train.py:42: options is one with op or a callback, but must be one without",
	};
	ls_group *group = runner_open(self), *none;
	struct ls_call_options labelled = {.size = sizeof labelled, .label = "train.py:42"};
	const int ranks[] = {9};
	ls_request *op;
	struct caught caught;
	int32_t value = 0;
	caught_begin(&caught);
	GIVES(LS_BAD_ARGUMENT, ls_send(group, &value, 1, LS_INT32, 7, NULL));
	GIVES(LS_BAD_ARGUMENT, ls_wait(NULL, 0));
	GIVES(LS_BAD_ARGUMENT, ls_reduce(group, &value, &value, 1, LS_INT32, LS_SUM, -1, NULL));
	GIVES(LS_BAD_ARGUMENT, ls_phase_end(group, "x"));
	GIVES(LS_BAD_ARGUMENT, ls_group_open(NULL, NULL));
	GIVES(LS_BAD_ARGUMENT, ls_broadcast(group, &value, &value, 1, LS_INT32, -1, &labelled));
	GIVES(LS_BAD_ARGUMENT, ls_recv(group, &value, 1, LS_INT32, 7, &labelled));
	GIVES(LS_BAD_ARGUMENT, ls_group_from_members(group, ranks, 1, &labelled, &none));
	labelled.request = &op;
	GIVES(LS_BAD_ARGUMENT, ls_register(group, NULL, 0, -1, 0, &labelled));
	caught_end(&caught);
	for (size_t i = 0; i < sizeof said / sizeof said[0]; i++)
		SAYS(caught.text, said[i]);
	ls_group_close(group);
}

/* What a second free would return to the pool is a receive that is still posted. */
void freed_handles_are_found(struct runner_rank *self)
{
	static const char *const calls[] = {"ls_request_free", "ls_wait", "ls_test", "ls_cancel",
					    "ls_wait_any"};
	ls_group *group = runner_open(self);
	int32_t sent[2] = {7, 8}, received[2] = {0};
	ls_request *first, *second, *both[2];
	struct caught caught;
	char want[256];
	int index;
	caught_begin(&caught);
	OK(ls_irecv(group, &received[0], 1, LS_INT32, 0, NULL, &first));
	ls_request_free(first);
	ls_request_free(first);
	GIVES(LS_BAD_ARGUMENT, ls_wait(first, 0));
	GIVES(LS_BAD_ARGUMENT, ls_test(first));
	GIVES(LS_BAD_ARGUMENT, ls_cancel(first));
	OK(ls_irecv(group, &received[1], 1, LS_INT32, 0, NULL, &second));
	CHECK(second != first);
	both[0] = second;
	both[1] = first;
	GIVES(LS_BAD_ARGUMENT, ls_wait_any(both, 2, 0, &index));
	caught_end(&caught);
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		snprintf(want, sizeof want,
			 "%s: request is one that was freed already, but must be a handle of an "
			 "operation that has not been freed, called from wrong_test.c:",
			 calls[i]);
		SAYS(caught.text, want);
	}
	for (int i = 0; i < 2; i++)
		OK(ls_send(group, &sent[i], 1, LS_INT32, 0, NULL));
	OK(ls_wait(second, 0));
	ls_request_free(second);
	CHECK(received[0] == 7 && received[1] == 8);
	ls_group_close(group);
}
