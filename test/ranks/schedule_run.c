/* SPDX-License-Identifier: BSD-3-Clause
 * Runs one rank of a schedule; see schedule_run.h. The first 8 bytes of a message say which rank
 * sent it, to which, with which tag, and its number among these; all further bytes say the same. */
#include "schedule_run.h"

#include <stdio.h>
#include <string.h>

#include "generator.h"
#include "values.h"

enum { GUARD = 16, GUARD_BYTE = 0xa5, BLOT_BYTE = 0xee, TRIES = 20 };

static const struct schedule_action *action_of(const struct schedule_run *run, int i)
{
	return &run->program->actions[i];
}

/* ---- what is in a message ---- */

static uint64_t identity(uint32_t number, int from, int to, int tag, int count)
{
	return (uint64_t)number << 32 | (uint64_t)from << 24 | (uint64_t)to << 16 |
	       (uint64_t)tag << 8 | (uint64_t)count;
}

static uint64_t word_at(uint64_t id, uint32_t i)
{
	return i == 0 ? id : generator_mix(id, i);
}

static void fill(unsigned char *at, uint32_t bytes, uint64_t id)
{
	for (uint32_t i = 0; i < bytes; i += 8) {
		uint64_t word = word_at(id, i);
		memcpy(at + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

static void check_filled(const unsigned char *at, uint32_t bytes, uint64_t id, int action)
{
	for (uint32_t i = 0; i < bytes; i += 8) {
		uint64_t word = word_at(id, i);
		CHECK_THAT(memcmp(at + i, &word, bytes - i < 8 ? bytes - i : 8) == 0,
			   "action %d: byte %u of %u is not from message %llx", action, i, bytes,
			   (unsigned long long)id);
	}
	for (int i = 0; i < GUARD; i++)
		CHECK_THAT(at[bytes + i] == GUARD_BYTE, "action %d: written behind the buffer",
			   action);
}

static ls_dtype dtype_of(uint32_t bytes)
{
	return bytes % 8 ? LS_UINT8 : LS_INT64;
}

static uint64_t count_of(uint32_t bytes)
{
	return bytes / ls_dtype_bytes(dtype_of(bytes));
}

static int nth_collective(const struct schedule_run *run, int i)
{
	int n = 0;
	for (int j = 0; j < i; j++)
		n += action_of(run, j)->kind == SCHEDULE_COLLECTIVE;
	return n;
}

static unsigned seed_of(const struct schedule_run *run, int i)
{
	return run->number * 71 + (unsigned)nth_collective(run, i);
}

/* ---- buffers ---- */

static void open_buffer(struct schedule_run *run, int i, uint64_t bytes)
{
	struct schedule_slot *slot = &run->slots[i];
	slot->plain = action_of(run, i)->choice & 1;
	slot->buffer = values_alloc(run->group, bytes + GUARD, slot->plain);
	memset(slot->buffer, BLOT_BYTE, bytes);
	memset(slot->buffer + bytes, GUARD_BYTE, GUARD);
}

static void open_collective(struct schedule_run *run, int i)
{
	const struct schedule_action *action = action_of(run, i);
	uint64_t parts =
		action->collective == SCHEDULE_ALLGATHER ? (uint64_t)run->self->size + 1 : 1;
	open_buffer(run, i, action->count * parts * sizeof(int64_t));
	if (action->collective != SCHEDULE_BROADCAST || action->root == run->self->rank)
		values_fill(run->slots[i].buffer, action->count, LS_INT64, LS_SUM, run->self->rank,
			    seed_of(run, i));
}

static void open_buffers(struct schedule_run *run)
{
	for (int i = 0; i < run->program->count; i++) {
		const struct schedule_action *action = action_of(run, i);
		if (action->kind == SCHEDULE_SEND) {
			uint32_t bytes = schedule_bytes(run->schedule, action->peer, action->tag);
			open_buffer(run, i, bytes);
			fill(run->slots[i].buffer, bytes,
			     identity(run->number, run->self->rank, action->peer, action->tag,
				      schedule_number(run->program, i)));
		} else if (action->kind == SCHEDULE_RECV &&
			   !schedule_must_probe(run->schedule, action)) {
			open_buffer(run, i,
				    schedule_bytes(run->schedule, run->self->rank, action->tag));
		} else if (action->kind == SCHEDULE_COLLECTIVE) {
			open_collective(run, i);
		}
	}
}

/* ---- calls ---- */

static ls_status send_one(struct schedule_run *run, int i)
{
	const struct schedule_action *action = action_of(run, i);
	struct schedule_slot *slot = &run->slots[i];
	uint32_t bytes = schedule_bytes(run->schedule, action->peer, action->tag);
	struct ls_call_options options = {.size = sizeof options, .tag = action->tag};
	if (action->blocks || action->batched)
		return ls_send(run->group, slot->buffer, count_of(bytes), dtype_of(bytes),
			       action->peer, &options);
	if (action->choice & 2)
		return ls_isend(run->group, slot->buffer, count_of(bytes), dtype_of(bytes),
				action->peer, &options, &slot->op);
	options.request = &slot->op;
	return ls_send(run->group, slot->buffer, count_of(bytes), dtype_of(bytes), action->peer,
		       &options);
}

static int source_of(const struct schedule_action *action)
{
	return action->peer == SCHEDULE_ANY ? LS_ANY_SOURCE : action->peer;
}

static int tag_of(const struct schedule_action *action)
{
	return action->tag == SCHEDULE_ANY ? LS_ANY_TAG : action->tag;
}

/* Asks first, and receives just that message. */
static ls_status probe_and_receive(struct schedule_run *run, int i)
{
	const struct schedule_action *action = action_of(run, i);
	struct schedule_slot *slot = &run->slots[i];
	struct ls_call_options options = {.size = sizeof options, .tag = tag_of(action)};
	struct ls_message there = {.size = sizeof there};
	ls_status status = LS_PENDING;
	for (unsigned tries = action->choice >> 8 & 3; tries > 0 && status == LS_PENDING; tries--)
		status = ls_iprobe(run->group, source_of(action), &options, &there);
	if (status == LS_PENDING)
		status = ls_probe(run->group, source_of(action), &options, &there);
	if (status != LS_OK)
		return status;
	CHECK(there.source >= 0 && there.source < run->self->size);
	CHECK(there.tag >= 0 && there.tag < SCHEDULE_TAGS);
	uint32_t bytes = schedule_bytes(run->schedule, run->self->rank, there.tag);
	CHECK(there.count == count_of(bytes) && there.dtype == dtype_of(bytes));
	if (!slot->buffer)
		open_buffer(run, i, bytes);
	options.tag = there.tag;
	options.message = &slot->message;
	status = ls_recv(run->group, slot->buffer, there.count, (ls_dtype)there.dtype, there.source,
			 &options);
	CHECK(status != LS_OK ||
	      (slot->message.source == there.source && slot->message.tag == there.tag));
	return status;
}

static ls_status receive_one(struct schedule_run *run, int i)
{
	const struct schedule_action *action = action_of(run, i);
	struct schedule_slot *slot = &run->slots[i];
	bool one = action->peer != SCHEDULE_ANY && action->tag != SCHEDULE_ANY;
	if (action->blocks && !action->batched &&
	    (schedule_must_probe(run->schedule, action) || action->choice % 16 < 3))
		return probe_and_receive(run, i);
	uint32_t bytes = schedule_bytes(run->schedule, run->self->rank, action->tag);
	struct ls_call_options options = {.size = sizeof options,
					  .tag = tag_of(action),
					  .message = one && action->choice & 4 ? NULL
									       : &slot->message};
	if (!options.message)
		slot->message = (struct ls_message){.source = action->peer,
						    .tag = action->tag,
						    .dtype = dtype_of(bytes),
						    .count = count_of(bytes)};
	if (action->blocks || action->batched)
		return ls_recv(run->group, slot->buffer, count_of(bytes), dtype_of(bytes),
			       source_of(action), &options);
	if (action->choice & 2)
		return ls_irecv(run->group, slot->buffer, count_of(bytes), dtype_of(bytes),
				source_of(action), &options, &slot->op);
	options.request = &slot->op;
	return ls_recv(run->group, slot->buffer, count_of(bytes), dtype_of(bytes),
		       source_of(action), &options);
}

static ls_status call_collective(struct schedule_run *run, int i)
{
	const struct schedule_action *action = action_of(run, i);
	struct schedule_slot *slot = &run->slots[i];
	struct ls_call_options options = {.size = sizeof options,
					  .request = action->blocks ? NULL : &slot->op};
	int64_t *buffer = (int64_t *)(void *)slot->buffer;
	switch ((enum schedule_collective)action->collective) {
	case SCHEDULE_ALLREDUCE:
		return ls_allreduce(run->group, buffer, buffer, action->count, LS_INT64, LS_SUM,
				    &options);
	case SCHEDULE_BROADCAST:
		return ls_broadcast(run->group, buffer, buffer, action->count, LS_INT64,
				    action->root, &options);
	case SCHEDULE_ALLGATHER:
		return ls_allgather(run->group, buffer, buffer + action->count, action->count,
				    LS_INT64, &options);
	default:
		return ls_barrier(run->group, &options);
	}
}

/* ---- waiting ---- */

/* What the library has said is over, is: a buffer that was sent may be used again. */
static void is_over(struct schedule_run *run, int i)
{
	const struct schedule_action *action = action_of(run, i);
	run->slots[i].over = true;
	if (action->kind == SCHEDULE_SEND)
		memset(run->slots[i].buffer, BLOT_BYTE,
		       schedule_bytes(run->schedule, action->peer, action->tag));
	if (action->kind == SCHEDULE_BATCH_END)
		for (uint64_t set = action->of; set; set &= set - 1)
			is_over(run, __builtin_ctzll(set));
}

static void free_handle(struct schedule_run *run, int i)
{
	ls_request_free(run->slots[i].op);
	run->slots[i].op = NULL;
}

static ls_status wait_for(struct schedule_run *run, int i, uint32_t choice)
{
	struct schedule_slot *slot = &run->slots[i];
	ls_status status = LS_PENDING;
	if (!slot->op)
		return LS_OK;
	for (int tries = 0; tries < TRIES && status == LS_PENDING && choice % 3 == 1; tries++)
		status = ls_test(slot->op);
	for (int tries = 0; tries < 3 && status == LS_PENDING && choice % 3 == 2; tries++)
		status = ls_wait(slot->op, 1);
	if (status == LS_PENDING)
		status = ls_wait(slot->op, 0);
	if (status != LS_OK)
		return status;
	free_handle(run, i);
	is_over(run, i);
	return LS_OK;
}

static ls_status wait_for_all(struct schedule_run *run, const struct schedule_action *action)
{
	for (uint64_t set = action->of; set; set &= set - 1) {
		ls_status status = wait_for(run, __builtin_ctzll(set), action->choice);
		if (status != LS_OK)
			return status;
	}
	return LS_OK;
}

static ls_status wait_for_any(struct schedule_run *run, const struct schedule_action *action)
{
	ls_request *handles[SCHEDULE_ACTIONS] = {NULL};
	int index;
	for (uint64_t set = action->of; set; set &= set - 1) {
		int i = __builtin_ctzll(set);
		handles[i] = run->slots[i].op;
		if (!handles[i])
			return LS_OK; /* waited for before */
	}
	ls_status status = ls_wait_any(handles, SCHEDULE_ACTIONS, 0, &index);
	if (status != LS_OK)
		return status;
	CHECK(index >= 0 && index < SCHEDULE_ACTIONS && handles[index]);
	free_handle(run, index);
	is_over(run, index);
	return LS_OK;
}

/* ---- */

static ls_status call(struct schedule_run *run, int i)
{
	const struct schedule_action *action = action_of(run, i);
	switch ((enum schedule_kind)action->kind) {
	case SCHEDULE_SEND:
		return send_one(run, i);
	case SCHEDULE_RECV:
		return receive_one(run, i);
	case SCHEDULE_COLLECTIVE:
		return call_collective(run, i);
	case SCHEDULE_WAIT:
		return wait_for_all(run, action);
	case SCHEDULE_WAIT_ANY:
		return wait_for_any(run, action);
	case SCHEDULE_BATCH:
		return ls_batch_begin(run->group);
	case SCHEDULE_BATCH_END:
		break;
	}
	return ls_batch_end(run->group, action->blocks ? NULL : &run->slots[i].op);
}

static bool has_handle(const struct schedule_action *action)
{
	return !action->blocks && !action->batched && action->kind != SCHEDULE_BATCH;
}

/* So that the handles of an unfinished batch are not lost. Its parts may all have been complete
 * before the group failed; then it ends well. */
static void leave_batch(struct schedule_run *run)
{
	bool inside = false;
	for (int i = 0; i < run->at; i++)
		if (action_of(run, i)->kind == SCHEDULE_BATCH)
			inside = true;
		else if (action_of(run, i)->kind == SCHEDULE_BATCH_END)
			inside = false;
	if (!inside || action_of(run, run->at)->kind == SCHEDULE_BATCH_END)
		return;
	ls_status status = ls_batch_end(run->group, NULL);
	CHECK_THAT(status == run->status || status == LS_OK, "the batch ends with %s",
		   ls_status_name(status));
}

void schedule_run_begin(struct schedule_run *run, const struct runner_rank *self, ls_group *group,
			const struct schedule *schedule, uint32_t number)
{
	memset(run, 0, sizeof *run);
	run->self = self;
	run->group = group;
	run->schedule = schedule;
	run->program = &schedule->programs[self->rank];
	run->number = number;
	schedule_text(run->program, run->text, sizeof run->text);
	open_buffers(run);
	for (int i = 0; i < run->program->count; i++)
		run->slots[i].message.size = sizeof(struct ls_message);
	for (; run->at < run->program->count; run->at++) {
		const struct schedule_action *action = action_of(run, run->at);
		runner_note(self, "--case %u, action %d of %s", number, run->at, run->text);
		run->status = call(run, run->at);
		if (run->status != LS_OK) {
			leave_batch(run);
			return;
		}
		CHECK(has_handle(action) == (run->slots[run->at].op != NULL));
		if (action->blocks)
			is_over(run, run->at);
	}
}

static void check_collective(const struct schedule_run *run, int i)
{
	const struct schedule_action *action = action_of(run, i);
	const int64_t *buffer = (const int64_t *)(const void *)run->slots[i].buffer;
	int size = run->self->size;
	if (action->collective == SCHEDULE_ALLREDUCE)
		values_check_reduced(buffer, action->count, LS_INT64, LS_SUM, size, seed_of(run, i));
	if (action->collective == SCHEDULE_BROADCAST)
		values_check_from(buffer, action->count, LS_INT64, action->root, seed_of(run, i));
	for (int q = 0; q < size && action->collective == SCHEDULE_ALLGATHER; q++)
		values_check_from(buffer + (uint64_t)(q + 1) * action->count, action->count,
				  LS_INT64, q, seed_of(run, i));
}

void schedule_run_check(const struct schedule_run *run, const struct schedule_end *end)
{
	int next[SCHEDULE_RANKS][SCHEDULE_TAGS] = {0}, me = run->self->rank;
	for (int i = 0; i < run->program->count; i++) {
		const struct schedule_action *action = action_of(run, i);
		if (action->kind == SCHEDULE_COLLECTIVE)
			check_collective(run, i);
		if (action->kind != SCHEDULE_RECV)
			continue;
		const struct ls_message *message = &run->slots[i].message;
		int source = message->source, tag = message->tag;
		CHECK_THAT(source >= 0 && source < run->self->size && tag >= 0 && tag < SCHEDULE_TAGS,
			   "action %d got tag %d from rank %d", i, tag, source);
		CHECK(action->peer == SCHEDULE_ANY || action->peer == source);
		CHECK(action->tag == SCHEDULE_ANY || action->tag == tag);
		uint32_t bytes = schedule_bytes(run->schedule, me, tag);
		CHECK(message->count == count_of(bytes) && message->dtype == dtype_of(bytes));
		/* Of one sender and tag in the order of the calls, on both sides. */
		int number = next[source][tag]++;
		check_filled(run->slots[i].buffer, bytes,
			     identity(run->number, source, me, tag, number), i);
		if (!end)
			continue;
		const struct schedule_program *sender = &run->schedule->programs[source];
		CHECK_THAT(end->source[me][i] == source &&
				   sender->actions[end->sent[me][i]].tag == tag &&
				   schedule_number(sender, end->sent[me][i]) == number,
			   "action %d got number %d of rank %d, tag %d, not action %d of rank %d",
			   i, number, source, tag, end->sent[me][i], end->source[me][i]);
	}
}

void schedule_run_end(struct schedule_run *run, ls_status failure)
{
	for (int i = 0; i < run->program->count; i++) {
		struct schedule_slot *slot = &run->slots[i];
		if (slot->op) {
			ls_status status = ls_wait(slot->op, 0);
			CHECK_THAT(status == LS_OK || status == failure, "action %d ended with %s",
				   i, ls_status_name(status));
			free_handle(run, i);
			if (status == LS_OK)
				is_over(run, i);
		}
	}
	for (int i = 0; i < run->program->count; i++)
		if (run->slots[i].buffer)
			values_free(run->group, run->slots[i].buffer, run->slots[i].plain);
}

/* ---- the report ---- */

/* The first line, such as "rank 0 waits for rank 1 (…), rank 1 waits for itself". */
static int read_hops(const char *text, struct schedule_hop *hops)
{
	static const char waits[] = " waits for ";
	int count = 0;
	const char *end = text + strcspn(text, "\n");
	for (const char *at = text; (at = strstr(at, waits)) != NULL && at < end;
	     at += strlen(waits)) {
		const char *rank = at, *peer = at + strlen(waits);
		while (rank > text && rank[-1] >= '0' && rank[-1] <= '9')
			rank--;
		if (count == SCHEDULE_RANKS)
			return -1;
		struct schedule_hop *hop = &hops[count++];
		if (sscanf(rank, "%d", &hop->rank) != 1)
			return -1;
		hop->peer = hop->rank;
		if (!strncmp(peer, "any rank", 8))
			hop->peer = -1;
		else if (strncmp(peer, "itself", 6) != 0 && sscanf(peer, "rank %d", &hop->peer) != 1)
			return -1;
	}
	/* It goes round: a rank that waits for any source waits for the next one, too. */
	for (int i = 0; i < count; i++)
		if (hops[i].peer < 0)
			hops[i].peer = hops[(i + 1) % count].rank;
	return count;
}

/* Whether what came out is one of the ends that the matcher has found. Ranks that are not in the
 * cycle may have been told of it before they came to where they would be stuck. */
static bool fits(const struct schedule_run *run, const struct schedule_end *end,
		 const struct schedule_hop *hops, int count)
{
	int me = run->self->rank;
	if (!schedule_is_cycle(end, hops, count) || run->at > end->at[me])
		return false;
	for (int i = 0; i < count; i++)
		if (hops[i].rank == me && run->at != end->at[me])
			return false;
	for (int i = 0; i < run->program->count; i++)
		if (run->slots[i].over && !(end->over[me] >> i & 1))
			return false;
	return true;
}

bool schedule_run_fits(const struct schedule_run *run, const struct schedule_verdict *verdict,
		       const char *report)
{
	struct schedule_hop hops[SCHEDULE_RANKS];
	int count = read_hops(report, hops);
	bool fitting = false;
	for (int e = 0; e < verdict->end_count && count > 0; e++)
		fitting |= fits(run, &verdict->ends[e], hops, count);
	return fitting;
}
