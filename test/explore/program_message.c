/* SPDX-License-Identifier: BSD-3-Clause
 * Messages of a program. Each word of a message tells its event, its lane and its number. */
#include <stdlib.h>
#include <string.h>

#include "generator.h"
#include "program_private.h"
#include "scheduler.h"

enum { GUARD = 16, GUARD_BYTE = 0xa5, BLOT_BYTE = 0xee, IPROBES = 6, KEPT_MAX = 64 };

static const struct program_event *event_of(const struct lane_run *lane, int event)
{
	return &lane->run->program->events[event];
}

/* ---- what is in a message ---- */

static uint64_t identity(int event, int lane, int i)
{
	return (uint64_t)event << 32 | (uint64_t)lane << 16 | (uint64_t)i;
}

static uint64_t word_at(const struct lane_run *lane, uint64_t id, size_t i)
{
	return i == 0 ? id ^ lane->run->program->seed
		      : generator_mix(id ^ lane->run->program->seed, i);
}

static void fill(const struct lane_run *lane, unsigned char *at, size_t bytes, uint64_t id)
{
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = word_at(lane, id, i);
		memcpy(at + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

static void check_filled(const struct lane_run *lane, int event, const unsigned char *at,
			 size_t bytes, uint64_t id)
{
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = word_at(lane, id, i);
		if (memcmp(at + i, &word, bytes - i < 8 ? bytes - i : 8) != 0)
			lane_fail(lane, event, "byte %zu of %zu is not from message %llx", i, bytes,
				  (unsigned long long)id);
	}
}

static ls_dtype dtype_of(size_t bytes, unsigned otherwise)
{
	if (otherwise & PROGRAM_ODD_DTYPE)
		return bytes % 8 ? LS_INT8 : LS_FLOAT64;
	return bytes % 8 ? LS_UINT8 : LS_INT64;
}

static uint64_t count_of(size_t bytes)
{
	return bytes / ls_dtype_bytes(dtype_of(bytes, 0));
}

/* A lane that receives from several sources reads from each message which one it is. */
static void check_server(const struct lane_run *lane, const struct half_run *half)
{
	const struct program_event *event = event_of(lane, half->event);
	int next[PROGRAM_LANES] = {0}, from[PROGRAM_RANKS] = {0};
	for (int i = 0; i < half->count; i++) {
		const unsigned char *at = half->memory.at + (size_t)i * half->stride;
		const struct program_group *group = &lane->run->program->groups[event->group];
		int source = half->messages[i].source, sender;
		if (source < 0 || source >= group->size)
			lane_fail(lane, half->event, "message %d came from rank %d", i, source);
		if (half->bytes < 8) {
			from[group->members[source]]++;
			continue;
		}
		uint64_t word;
		memcpy(&word, at, sizeof word);
		sender = (int)((word ^ lane->run->program->seed) >> 16 & 0xffff);
		if (sender >= PROGRAM_LANES || !(event->senders >> sender & 1) ||
		    program_rank_of(sender) != group->members[source])
			lane_fail(lane, half->event, "message %d is of nobody: %llx", i,
				  (unsigned long long)(word ^ lane->run->program->seed));
		check_filled(lane, half->event, at, half->bytes,
			     identity(half->event, sender, next[sender]++));
	}
	for (int r = 0; r < PROGRAM_RANKS && half->bytes < 8; r++) {
		unsigned lanes =
			event->senders >> program_lane(r, 0) & ((1u << PROGRAM_THREADS) - 1);
		if (from[r] != __builtin_popcount(lanes) * event->repeat)
			lane_fail(lane, half->event, "%d messages came from rank %d", from[r], r);
	}
}

static void check_message(const struct lane_run *lane, const struct half_run *half, int i)
{
	const struct ls_message *message = &half->messages[i];
	const struct program_event *event = event_of(lane, half->event);
	const unsigned char *at =
		half->blocks ? half->blocks[i] : half->memory.at + (size_t)i * half->stride;
	if (message->count != count_of(half->bytes) || message->dtype != dtype_of(half->bytes, 0) ||
	    message->tag != program_tag(lane->run->program, half->event))
		lane_fail(lane, half->event, "message %d has tag %d and %llu elements", i,
			  message->tag, (unsigned long long)message->count);
	if (event->kind != PROGRAM_SERVER)
		check_filled(lane, half->event, at, half->bytes,
			     identity(half->event, event->from, i));
	for (int g = 0; g < GUARD && !half->blocks; g++)
		if (at[half->bytes + (size_t)g] != GUARD_BYTE)
			lane_fail(lane, half->event, "written behind the buffer");
}

void message_check(const struct lane_run *lane, const struct half_run *half)
{
	if (!half->receives)
		return;
	for (int i = 0; i < half->count; i++)
		check_message(lane, half, i);
	if (event_of(lane, half->event)->kind == PROGRAM_SERVER)
		check_server(lane, half);
}

void message_free(struct lane_run *lane, struct half_run *half)
{
	for (int i = 0; half->blocks && i < half->count; i++)
		if (half->blocks[i] &&
		    ls_free(lane_group(lane, event_of(lane, half->event)->group), half->blocks[i]))
			lane_fail(lane, half->event, "a block that was received cannot be freed");
	free(half->blocks);
	free(half->messages);
	memory_give(lane, &half->memory);
}

/* ---- calls ---- */

static void open_buffers(struct lane_run *lane, struct half_run *half)
{
	const struct program_event *event = event_of(lane, half->event);
	half->bytes = event->bytes;
	half->stride = (half->bytes + GUARD + 63) / 64 * 64;
	half->memory = memory_take(lane, half->stride * (size_t)half->count,
				   (enum program_memory)event->halves[lane->number].memory);
	half->messages = calloc((size_t)half->count, sizeof *half->messages);
	if (!half->messages)
		lane_fail(lane, half->event, "no memory");
	for (int i = 0; i < half->count; i++) {
		unsigned char *at = half->memory.at + (size_t)i * half->stride;
		half->messages[i].size = sizeof half->messages[i];
		memset(at, BLOT_BYTE, half->bytes);
		memset(at + half->bytes, GUARD_BYTE, GUARD);
		if (!half->receives)
			fill(lane, at, half->bytes, identity(half->event, lane->number, i));
	}
}

static int peer_in_group(const struct lane_run *lane, int event, int other)
{
	const struct program *program = lane->run->program;
	return program_rank_in(&program->groups[program->events[event].group],
			       program_rank_of(other));
}

struct call {
	ls_group *group;
	void *buffer;
	uint64_t count;
	ls_dtype dtype;
	int peer;
	struct ls_call_options options;
	char label[LABEL_BYTES];
};

static struct call call_of(struct lane_run *lane, struct half_run *half, int i)
{
	const struct program *program = lane->run->program;
	const struct program_event *event = event_of(lane, half->event);
	const struct program_half *as = &event->halves[lane->number];
	struct call call = {.group = lane_group(lane, event->group),
			    .buffer = half->memory.at + (size_t)i * half->stride,
			    .count = count_of(half->bytes),
			    .dtype = dtype_of(half->bytes, as->otherwise)};
	call.options = lane_options(lane, half->event, call.label);
	call.options.tag = program_tag(program, half->event);
	call.options.timeout_ms = as->timeout_ms;
	call.options.label = NULL; /* set after *call has its final address */
	call.peer = peer_in_group(lane, half->event, half->receives ? event->from : event->to);
	if (half->receives) {
		call.options.message = &half->messages[i];
		if (event->any_tag)
			call.options.tag = LS_ANY_TAG;
		if (event->kind == PROGRAM_SERVER)
			call.peer = LS_ANY_SOURCE;
	}
	if (as->otherwise & PROGRAM_ODD_COUNT)
		call.count = as->choice & 1 ? call.count - 1 : call.count + 1;
	return call;
}

static ls_status send_or_receive(const struct half_run *half, struct call *call, bool blocks)
{
	call->options.label = call->label;
	if (!half->receives)
		return blocks ? ls_send_block(call->group, call->buffer, call->count, call->dtype,
					      call->peer, &call->options)
			      : ls_send(call->group, call->buffer, call->count, call->dtype,
					call->peer, &call->options);
	return ls_recv(call->group, call->buffer, call->count, call->dtype, call->peer,
		       &call->options);
}

/* Probes, and receives just that message. */
static ls_status probe_and_receive(struct half_run *half, struct call *call, bool polls)
{
	struct ls_message there = {.size = sizeof there};
	struct ls_message *told = call->options.message;
	ls_status status = LS_PENDING;
	call->options.label = call->label;
	call->options.message = NULL;
	for (int n = 0; n < IPROBES && polls && status == LS_PENDING; n++)
		status = ls_iprobe(call->group, call->peer, &call->options, &there);
	if (status == LS_PENDING)
		status = ls_probe(call->group, call->peer, &call->options, &there);
	if (status != LS_OK)
		return status;
	call->options.message = told;
	call->options.tag = there.tag;
	call->peer = there.source;
	return send_or_receive(half, call, false);
}

/* Begins and cancels it. If that succeeds, calls again, and blocks. */
static ls_status retract(struct half_run *half, struct call *call)
{
	ls_request *op = NULL;
	call->options.request = &op;
	ls_status status = send_or_receive(half, call, false);
	if (status != LS_OK)
		return status;
	ls_status taken = ls_cancel(op);
	status = ls_wait(op, 0);
	ls_request_free(op);
	call->options.request = NULL;
	if (taken != LS_OK)
		return taken == LS_PENDING ? status : taken;
	return status == LS_CANCELLED ? send_or_receive(half, call, false)
	       : status == LS_OK      ? LS_INTERNAL /* ls_cancel had said that it was cancelled */
				      : status;
}

static ls_status hand_over(struct lane_run *lane, struct half_run *half, struct call *call)
{
	void *block = NULL;
	size_t bytes = half->bytes + 8;
	ls_status status = ls_alloc(call->group, bytes, &block);
	if (status != LS_OK)
		return status;
	memcpy(block, call->buffer, half->bytes);
	call->buffer = block;
	status = send_or_receive(half, call, true);
	if (status != LS_OK && ls_free(call->group, block) != LS_OK)
		lane_fail(lane, half->event, "a block that was not sent cannot be freed");
	return status;
}

static ls_status receive_block(struct half_run *half, struct call *call, int i)
{
	call->options.label = call->label;
	return ls_recv_block(call->group, &half->blocks[i], call->count, call->dtype, call->peer,
			     &call->options);
}

static ls_status call_one(struct lane_run *lane, struct half_run *half, int i)
{
	const struct program_half *as = &event_of(lane, half->event)->halves[lane->number];
	struct call call = call_of(lane, half, i);
	ls_status status;
	switch ((enum program_form)as->form) {
	case PROGRAM_PROBE:
	case PROGRAM_IPROBE:
		return probe_and_receive(half, &call, as->form == PROGRAM_IPROBE);
	case PROGRAM_BLOCK:
		return half->receives ? receive_block(half, &call, i) : hand_over(lane, half, &call);
	case PROGRAM_RETRACT:
		return retract(half, &call);
	default:
		break;
	}
	half_options(half, as, i, &call.options);
	if (call.options.request && !call.options.callback && as->choice & 2) {
		ls_request **op = call.options.request;
		call.options.request = NULL;
		call.options.label = call.label;
		return half->receives ? ls_irecv(call.group, call.buffer, call.count, call.dtype,
						 call.peer, &call.options, op)
				      : ls_isend(call.group, call.buffer, call.count, call.dtype,
						 call.peer, &call.options, op);
	}
	status = send_or_receive(half, &call, false);
	if (status == LS_OK && call.options.callback) {
		half->callbacks++;
		ls_request_free(half->ops[i]);
		half->ops[i] = NULL;
	}
	return status;
}

static bool has_handles(uint8_t form)
{
	return form == PROGRAM_WAIT || form == PROGRAM_TEST || form == PROGRAM_BRIEF ||
	       form == PROGRAM_ANY || form == PROGRAM_POLL || form == PROGRAM_CALLBACK ||
	       form == PROGRAM_DROPPED;
}

static void begin_batch(struct lane_run *lane, struct half_run *half)
{
	int group = event_of(lane, half->event)->group;
	half->batched = true;
	if (lane->batch == group)
		return;
	ls_status status = ls_batch_begin(lane_group(lane, group));
	half_note(half, status);
	if (status == LS_OK)
		lane->batch = group;
}

static struct half_run *begin(struct lane_run *lane, int event, bool receives)
{
	const struct program_half *as = &event_of(lane, event)->halves[lane->number];
	struct half_run *half = half_new(lane, event, receives);
	open_buffers(lane, half);
	if (as->form == PROGRAM_BLOCK && receives)
		half->blocks = calloc((size_t)half->count, sizeof *half->blocks);
	if (as->form == PROGRAM_BATCH)
		begin_batch(lane, half);
	for (int i = 0; i < half->count && half->status == LS_OK; i++)
		half_note(half, call_one(lane, half, i));
	return half;
}

/* The lane sends to itself: begins the send, receives, and waits for the send. */
static void send_to_itself(struct lane_run *lane, int event)
{
	struct half_run *sends = begin(lane, event, false);
	struct half_run *receives = half_new(lane, event, true);
	open_buffers(lane, receives);
	struct call call = call_of(lane, receives, 0);
	half_note(receives, sends->status);
	if (receives->status == LS_OK)
		half_note(receives, send_or_receive(receives, &call, false));
	for (int i = 0; i < sends->count; i++)
		if (sends->ops[i]) {
			half_note(receives, ls_wait(sends->ops[i], 0));
			ls_request_free(sends->ops[i]);
		}
	message_free(lane, sends);
	free(sends->ops);
	free(sends);
	half_over(lane, receives);
}

void message_begin(struct lane_run *lane, int event)
{
	const struct program_event *of = event_of(lane, event);
	const struct program_half *as = &of->halves[lane->number];
	if (of->kind == PROGRAM_MESSAGE && of->from == of->to) {
		send_to_itself(lane, event);
		return;
	}
	struct half_run *half = begin(lane, event, lane->number == of->to);
	bool keeps = half->blocks && as->lag > 0;
	if (half->batched && lane->batch == of->group)
		lane->under_way[lane->count++] = half;
	else if (has_handles(as->form) || keeps)
		half_leave(lane, half);
	else
		half_over(lane, half);
}

/* ---- events with a tag of their own ---- */

void blocks_run(struct lane_run *lane, int event)
{
	const struct program_event *of = event_of(lane, event);
	struct half_run *half = half_new(lane, event, lane->number == of->to);
	uint64_t generator = generator_mix(lane->run->program->seed, (uint64_t)event);
	void *kept[KEPT_MAX];
	/* If the receiver keeps all blocks that it can, the sender waits until it frees one. */
	uint8_t choice = of->halves[lane->number].choice;
	int count = 0, most = choice & 1 ? KEPT_MAX : 1 + choice / 2 % KEPT_MAX;
	open_buffers(lane, half);
	for (int i = 0; i < of->repeat && half->status == LS_OK; i++) {
		struct call call = call_of(lane, half, 0);
		if (!half->receives) {
			fill(lane, half->memory.at, half->bytes, identity(event, of->from, i));
			half_note(half, hand_over(lane, half, &call));
			continue;
		}
		call.options.label = call.label;
		half_note(half, ls_recv_block(call.group, &kept[count], call.count, call.dtype,
					      call.peer, &call.options));
		if (half->status != LS_OK)
			break;
		check_filled(lane, event, kept[count++], half->bytes, identity(event, of->from, i));
		if (count < most)
			continue;
		int freed = (int)generator_below(&generator, (uint32_t)count);
		if (ls_free(call.group, kept[freed]) != LS_OK)
			lane_fail(lane, event, "a block that was received cannot be freed");
		kept[freed] = kept[--count];
	}
	while (count > 0)
		if (ls_free(lane_group(lane, of->group), kept[--count]) != LS_OK)
			lane_fail(lane, event, "a block that was received cannot be freed");
	ls_status status = half->status;
	message_free(lane, half);
	free(half->ops);
	free(half);
	lane_over(lane, event, status);
}

/* No lane calls the other half, so the lane can cancel all operations. */
void cancel_run(struct lane_run *lane, int event)
{
	const struct program_event *of = event_of(lane, event);
	bool receives = of->kind == PROGRAM_CANCEL_RECV;
	struct half_run *half = half_new(lane, event, receives);
	ls_request *ops[PROGRAM_REPEAT] = {NULL};
	open_buffers(lane, half);
	for (int i = 0; i < of->repeat && half->status == LS_OK; i++) {
		struct call call = call_of(lane, half, 0);
		call.peer = peer_in_group(lane, event, of->to);
		call.options.label = call.label;
		call.options.message = NULL;
		half_note(half, receives ? ls_irecv(call.group, call.buffer, call.count, call.dtype,
						    call.peer, &call.options, &ops[i])
					 : ls_isend(call.group, call.buffer, call.count, call.dtype,
						    call.peer, &call.options, &ops[i]));
	}
	for (int i = 0; i < of->repeat; i++) {
		if (!ops[i])
			continue;
		ls_status taken = ls_cancel(ops[i]);
		/* A cancelled operation is complete. */
		ls_status status = taken == LS_OK ? ls_test(ops[i]) : ls_wait(ops[i], 0);
		if (taken == LS_OK && status != LS_CANCELLED)
			half_note(half, status == LS_OK ? LS_INTERNAL : status);
		else
			half_note(half, taken == LS_PENDING ? status : taken);
		ls_request_free(ops[i]);
	}
	ls_status status = half->status;
	message_free(lane, half);
	free(half->ops);
	free(half);
	lane_over(lane, event, status);
}
